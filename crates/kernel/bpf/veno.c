// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// Veno (Fu, Liew: TCP Veno: TCP enhancement for transmission over wireless access networks, IEEE Journal on
// Selected Areas in Communications 21(2), 2003): a loss while little waits in queues was no congestion.
#define COUNTERS n_sh_veno
#include "backlog.h"

#define BETA (options[0] << 8)

struct veno {
	struct backlog backlog;
	__u32 fraction;
};

SEC("struct_ops")
void BPF_PROG(veno_init, struct sock *sk)
{
	struct veno *own = private(sk);

	__builtin_memset(own, 0, sizeof(*own));
	begin_round(&own->backlog, tcp(sk));
	COUNT(sockets, 1);
}

SEC("struct_ops")
void BPF_PROG(veno_release, struct sock *sk)
{
	COUNT(sockets, -1);
}

SEC("struct_ops")
void BPF_PROG(veno_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct veno *own = private(sk);

	measure(&own->backlog, tcp(sk), sample->rtt_us);
}

SEC("struct_ops")
void BPF_PROG(veno_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	struct veno *own = private(sk);
	struct tcp_sock *tp = tcp(sk);
	__u64 growth;

	if (!is_window_limited(tp))
		return;
	if (is_slow_start(tp))
		acked = slow_start(tp, &own->fraction, acked);
	if (!acked || !tp->snd_cwnd)
		return;
	growth = acked * Q16 / tp->snd_cwnd;
	/* With a full queue one segment every other round trip. */
	if (own->backlog.waiting >= BETA)
		growth /= 2;
	grow(tp, &own->fraction, growth, INFINITE_SSTHRESH);
}

SEC("struct_ops")
__u32 BPF_PROG(veno_ssthresh, struct sock *sk)
{
	struct veno *own = private(sk);
	__u32 cwnd = tcp(sk)->snd_cwnd;

	own->fraction = 0;
	if (own->backlog.waiting < BETA) {
		COUNT(random, 1);
		return share(cwnd, 4, 5);
	}
	COUNT(congestion, 1);
	return share(cwnd, 1, 2);
}

SEC("struct_ops")
void BPF_PROG(veno_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct tcp_sock *tp = tcp(sk);

	/* A timeout is congestion, whatever waits. The window is still the one before it. */
	if (event == CA_EVENT_LOSS) {
		COUNT(timeouts, 1);
		tp->snd_ssthresh = share(tp->snd_cwnd, 1, 2);
	}
}

SEC("struct_ops")
void BPF_PROG(veno_set_state, struct sock *sk, __u8 state)
{
	struct tcp_sock *tp = tcp(sk);

	/* So is a router's mark. */
	if (state == TCP_CA_CWR)
		tp->snd_ssthresh = share(tp->prior_cwnd, 1, 2);
}

SEC("struct_ops")
__u32 BPF_PROG(veno_undo_cwnd, struct sock *sk)
{
	return before_reduction(tcp(sk));
}

SEC(".struct_ops.link")
struct tcp_congestion_ops sh_veno = {
	.init = (void *)veno_init,
	.release = (void *)veno_release,
	.pkts_acked = (void *)veno_pkts_acked,
	.cong_avoid = (void *)veno_cong_avoid,
	.ssthresh = (void *)veno_ssthresh,
	.cwnd_event = (void *)veno_cwnd_event,
	.set_state = (void *)veno_set_state,
	.undo_cwnd = (void *)veno_undo_cwnd,
	.flags = FOR_EVERYBODY,
	.name = "sh_veno",
};
