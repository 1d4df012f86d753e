// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// Hybla (Caini, Firrincieli: TCP Hybla: a TCP enhancement for heterogeneous networks, International Journal of
// Satellite Communications and Networking 22, 2004): the rate grows like that of a connection with round trip RTT0.
#define COUNTERS n_sh_hybla
#include "control.h"

#define RTT0_US options[0]

struct hybla {
	/* The shortest round trip; 0 before the first. */
	__u32 base_us;
	__u32 fraction;
};

SEC("struct_ops")
void BPF_PROG(hybla_init, struct sock *sk)
{
	struct hybla *own = private(sk);

	__builtin_memset(own, 0, sizeof(*own));
	COUNT(sockets, 1);
}

SEC("struct_ops")
void BPF_PROG(hybla_release, struct sock *sk)
{
	COUNT(sockets, -1);
}

/* One segment per RTT0 is rho per round trip: where the reference connection begins and begins again. */
static void begin(struct tcp_sock *tp, const struct hybla *own, __u32 bound)
{
	__u32 start = rho(own->base_us, RTT0_US) >> 16;

	if (start > bound)
		start = bound;
	if (tp->snd_cwnd < start)
		tp->snd_cwnd = start;
}

SEC("struct_ops")
void BPF_PROG(hybla_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct hybla *own = private(sk);
	struct tcp_sock *tp = tcp(sk);
	bool is_first = !own->base_us;

	if (sample->rtt_us <= 0)
		return;
	if (is_first || sample->rtt_us < own->base_us)
		own->base_us = sample->rtt_us;
	if (is_first && is_slow_start(tp))
		begin(tp, own, receive_window(tp));
}

SEC("struct_ops")
void BPF_PROG(hybla_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct hybla *own = private(sk);
	struct tcp_sock *tp = tcp(sk);
	__u64 ratio = rho(own->base_us, RTT0_US);
	__u64 most = receive_window(tp);

	if (!is_window_limited(tp))
		return;
	if (is_slow_start(tp))
		grow(tp, &own->fraction, acked * exp2_less_one(ratio), tp->snd_ssthresh < most ? tp->snd_ssthresh : most);
	else
		grow(tp, &own->fraction, hybla_avoidance(acked, ratio, tp->snd_cwnd), most);
}

SEC("struct_ops")
__u32 BPF_PROG(hybla_ssthresh, struct sock *sk)
{
	struct hybla *own = private(sk);

	own->fraction = 0;
	COUNT(congestion, 1);
	return share(tcp(sk)->snd_cwnd, 1, 2);
}

SEC("struct_ops")
void BPF_PROG(hybla_set_state, struct sock *sk, __u8 state)
{
	struct tcp_sock *tp = tcp(sk);

	if (state != TCP_CA_LOSS)
		return;
	COUNT(timeouts, 1);
	begin(tp, private(sk), tp->snd_ssthresh);
}

SEC("struct_ops")
__u32 BPF_PROG(hybla_undo_cwnd, struct sock *sk)
{
	return before_reduction(tcp(sk));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops sh_hybla = {
	.init = (void *)hybla_init,
	.release = (void *)hybla_release,
	.pkts_acked = (void *)hybla_pkts_acked,
	.cong_avoid = (void *)hybla_cong_avoid,
	.ssthresh = (void *)hybla_ssthresh,
	.set_state = (void *)hybla_set_state,
	.undo_cwnd = (void *)hybla_undo_cwnd,
	.flags = FOR_EVERYBODY,
	.name = "sh_hybla",
};
