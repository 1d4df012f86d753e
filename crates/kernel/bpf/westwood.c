// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// Westwood+ (Grieco, Mascolo: Performance evaluation and comparison of Westwood+, New Reno, and Vegas TCP congestion
// control, ACM SIGCOMM Computer Communication Review 34(2), 2004): a loss leaves what the path was seen to carry.
#define COUNTERS n_sh_westwood
#include "control.h"

struct westwood {
	struct sample sample;
	/* The shortest round trip; 0 before the first. */
	__u32 base_us;
	/* The threshold may lie above the window, which the kernel would jump to at the end of a repair. */
	__u32 threshold;
	__u32 fraction;
};

SEC("struct_ops")
void BPF_PROG(westwood_init, struct sock *sk)
{
	struct westwood *own = private(sk);

	__builtin_memset(own, 0, sizeof(*own));
	COUNT(sockets, 1);
}

SEC("struct_ops")
void BPF_PROG(westwood_release, struct sock *sk)
{
	COUNT(sockets, -1);
}

SEC("struct_ops")
void BPF_PROG(westwood_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct westwood *own = private(sk);
	struct tcp_sock *tp = tcp(sk);

	if (sample->rtt_us > 0 && (!own->base_us || sample->rtt_us < own->base_us))
		own->base_us = sample->rtt_us;
	see(&own->sample, tp->tcp_mstamp, tp->delivered, sample->pkts_acked, tp->srtt_us >> 3);
}

SEC("struct_ops")
void BPF_PROG(westwood_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct westwood *own = private(sk);
	struct tcp_sock *tp = tcp(sk);

	if (!is_window_limited(tp))
		return;
	if (is_slow_start(tp))
		acked = slow_start(tp, &own->fraction, acked);
	if (acked && tp->snd_cwnd)
		grow(tp, &own->fraction, acked * Q16 / tp->snd_cwnd, INFINITE_SSTHRESH);
}

/* Before anything was measured half the window, as Reno. */
static __u32 measured(const struct westwood *own, const struct tcp_sock *tp)
{
	if (!own->sample.bandwidth || !own->base_us)
		return share(tp->snd_cwnd, 1, 2);
	return share(under_way(own->sample.bandwidth, own->base_us), 1, 1);
}

SEC("struct_ops")
__u32 BPF_PROG(westwood_ssthresh, struct sock *sk)
{
	struct westwood *own = private(sk);
	struct tcp_sock *tp = tcp(sk);

	own->fraction = 0;
	own->threshold = measured(own, tp);
	COUNT(congestion, 1);
	return own->threshold < tp->snd_cwnd ? own->threshold : tp->snd_cwnd;
}

SEC("struct_ops")
void BPF_PROG(westwood_set_state, struct sock *sk, __u8 state)
{
	struct westwood *own = private(sk);
	struct tcp_sock *tp = tcp(sk);

	if (state == TCP_CA_LOSS)
		COUNT(timeouts, 1);
	if (state == TCP_CA_OPEN && own->threshold > tp->snd_ssthresh)
		tp->snd_ssthresh = own->threshold;
}

SEC("struct_ops")
__u32 BPF_PROG(westwood_undo_cwnd, struct sock *sk)
{
	struct westwood *own = private(sk);

	own->threshold = 0;
	return before_reduction(tcp(sk));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops sh_westwood = {
	.init = (void *)westwood_init,
	.release = (void *)westwood_release,
	.pkts_acked = (void *)westwood_pkts_acked,
	.cong_avoid = (void *)westwood_cong_avoid,
	.ssthresh = (void *)westwood_ssthresh,
	.set_state = (void *)westwood_set_state,
	.undo_cwnd = (void *)westwood_undo_cwnd,
	.flags = FOR_EVERYBODY,
	.name = "sh_westwood",
};
