// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// Hybla-Veno (the enhanced TCP mechanism for 5G-IoT over GEO satellites, section 3): Hybla's growth with RTT0 =
// 75 ms, a slow start in three sub-phases, and reductions by Veno's estimate of what waits in queues.
#define COUNTERS n_hybla_veno
#include "backlog.h"

#define RTT0_US options[0]
#define BETA1 (options[1] << 8)
#define BETA2 (options[2] << 8)

struct hybla_veno {
	struct backlog backlog;
	__u32 fraction;
};

SEC("struct_ops")
void BPF_PROG(hybla_veno_init, struct sock *sk)
{
	struct hybla_veno *own = private(sk);

	__builtin_memset(own, 0, sizeof(*own));
	begin_round(&own->backlog, tcp(sk));
	COUNT(sockets, 1);
}

SEC("struct_ops")
void BPF_PROG(hybla_veno_release, struct sock *sk)
{
	COUNT(sockets, -1);
}

SEC("struct_ops")
void BPF_PROG(hybla_veno_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct hybla_veno *own = private(sk);

	measure(&own->backlog, tcp(sk), sample->rtt_us);
}

/* Growth per acknowledged segment: fast while window and flight are small against their bounds, slow near one. */
static __u64 slow_start_growth(const struct tcp_sock *tp, __u64 rho, __u64 flight, __u64 most)
{
	__u64 growth = exp2_less_one(rho);
	__u64 cwnd = tp->snd_cwnd;
	__u64 ssthresh = tp->snd_ssthresh;

	if (4 * cwnd >= 3 * ssthresh || 4 * flight >= 3 * most)
		return growth / 2;
	if (4 * cwnd <= ssthresh && 4 * flight < most)
		return 2 * growth + Q16;
	return growth;
}

SEC("struct_ops")
void BPF_PROG(hybla_veno_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct hybla_veno *own = private(sk);
	struct tcp_sock *tp = tcp(sk);
	__u64 ratio = rho(own->backlog.base_us, RTT0_US);
	__u64 most = receive_window(tp);
	__u64 growth;

	if (!is_window_limited(tp))
		return;
	if (is_slow_start(tp)) {
		growth = acked * slow_start_growth(tp, ratio, in_flight(tp) + acked, most);
		grow(tp, &own->fraction, growth, tp->snd_ssthresh < most ? tp->snd_ssthresh : most);
	} else {
		grow(tp, &own->fraction, hybla_avoidance(acked, ratio, tp->snd_cwnd), most);
	}
}

SEC("struct_ops")
__u32 BPF_PROG(hybla_veno_ssthresh, struct sock *sk)
{
	struct hybla_veno *own = private(sk);
	__u32 cwnd = tcp(sk)->snd_cwnd;

	own->fraction = 0;
	if (own->backlog.waiting < BETA1) {
		COUNT(random, 1);
		return share(cwnd, 4, 5);
	}
	if (own->backlog.waiting < BETA2) {
		COUNT(unclear, 1);
		return share(cwnd, 3, 5);
	}
	COUNT(congestion, 1);
	return share(cwnd, 2, 5);
}

SEC("struct_ops")
void BPF_PROG(hybla_veno_set_state, struct sock *sk, __u8 state)
{
	struct tcp_sock *tp = tcp(sk);

	if (state == TCP_CA_LOSS)
		COUNT(timeouts, 1);
	/* A router's mark, or a full queue of our own device: no guess is needed. */
	if (state == TCP_CA_CWR)
		tp->snd_ssthresh = share(tp->prior_cwnd, 2, 5);
}

SEC("struct_ops")
__u32 BPF_PROG(hybla_veno_undo_cwnd, struct sock *sk)
{
	return before_reduction(tcp(sk));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops hybla_veno = {
	.init = (void *)hybla_veno_init,
	.release = (void *)hybla_veno_release,
	.pkts_acked = (void *)hybla_veno_pkts_acked,
	.cong_avoid = (void *)hybla_veno_cong_avoid,
	.ssthresh = (void *)hybla_veno_ssthresh,
	.set_state = (void *)hybla_veno_set_state,
	.undo_cwnd = (void *)hybla_veno_undo_cwnd,
	.flags = FOR_EVERYBODY,
	.name = "hybla_veno",
};
