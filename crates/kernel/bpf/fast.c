// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// FAST alone; fast.h says what it is.
#define COUNTERS n_fast
#include "fast.h"

SEC("struct_ops")
void BPF_PROG(fast_init, struct sock *sk)
{
	fast_begin(private(sk), tcp(sk));
	COUNT(sockets, 1);
}

SEC("struct_ops")
void BPF_PROG(fast_release, struct sock *sk)
{
	COUNT(sockets, -1);
}

SEC("struct_ops")
void BPF_PROG(fast_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	fast_measure(private(sk), tcp(sk), sample);
}

SEC("struct_ops")
void BPF_PROG(fast_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	fast_grow(private(sk), tcp(sk), acked);
}

SEC("struct_ops")
__u32 BPF_PROG(fast_ssthresh, struct sock *sk)
{
	COUNT(congestion, 1);
	return fast_reduce(private(sk), tcp(sk));
}

SEC("struct_ops")
void BPF_PROG(fast_set_state, struct sock *sk, __u8 state)
{
	struct fast *own = private(sk);

	if (state == TCP_CA_LOSS) {
		COUNT(timeouts, 1);
		own->mean_rtt = 0;
	}
}

SEC("struct_ops")
__u32 BPF_PROG(fast_undo_cwnd, struct sock *sk)
{
	return before_reduction(tcp(sk));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops fast = {
	.init = (void *)fast_init,
	.release = (void *)fast_release,
	.pkts_acked = (void *)fast_pkts_acked,
	.cong_avoid = (void *)fast_cong_avoid,
	.ssthresh = (void *)fast_ssthresh,
	.set_state = (void *)fast_set_state,
	.undo_cwnd = (void *)fast_undo_cwnd,
	.flags = FOR_EVERYBODY,
	.name = "fast",
};
