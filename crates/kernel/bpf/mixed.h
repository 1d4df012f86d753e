// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// SatERN's sender (Tran Thai, Lopez Pacheco, Lochin, Arnal: SatERN: a PEP-less solution for satellite communications,
// equation 1): cwnd = min(cwnd of an end-to-end half, cwnd of XCP). Where the bottleneck speaks XCP its window is the
// smaller one, elsewhere the other. Where no acknowledgement brings XCP's word, the flow is its end-to-end half.
//
// A control defines CONTROL, its name, and the half: half_init, half_acked, half_grow, half_ssthresh, half_state,
// half_event. The half has the first 64 of the socket's private bytes and finds its own window in snd_cwnd.
#ifndef STARHOP_MIXED_H
#define STARHOP_MIXED_H

#include "control.h"
#include "xcp.h"

/* Each half may run ahead of the window in use by this factor: enough to take over within a round trip when the
 * bottleneck moves, and no burst when it does. */
#define LEAD 2
/* A peer that has not answered after so many round trips does not know the option: it is written no more. */
#define ROUNDS_OF_HOPE 8
#define HALF_WORDS 8

#define SOL_TCP 6
/* Linux 6.13; older headers lack it. */
#define TCP_BPF_SOCK_OPS_CB_FLAGS 1008

struct mixed {
	/* XCP's window, segments, Q16; and that of the other half. */
	__u64 window;
	__u32 end_to_end;
	/* The peer's running sum that was acted upon, and how often it had been told when this round began. */
	__u32 seen;
	__u32 heard;
	__u32 round_end;
	__u16 silent_rounds;
	__u8 is_heard;
};

static inline struct mixed *mixed(const struct sock *sk)
{
	return (void *)(((struct inet_connection_sock *)sk)->icsk_ca_priv + HALF_WORDS);
}

/* What the next header says: in bytes on the wire over IPv4, 20 too few over IPv6. */
static inline void publish(const struct tcp_sock *tp, struct xcp_flow *flow)
{
	__u64 cwnd = tp->snd_cwnd ? tp->snd_cwnd : 1;
	__u64 most = receive_window(tp);
	__u64 wish = most > cwnd ? (most - cwnd) * Q16 / cwnd : 0;

	flow->rtt_us = tp->srtt_us >> 3;
	flow->cwnd_bytes = cwnd * (tp->mss_cache + tp->tcp_header_len + 20);
	flow->wish = wish > 0x7fffffff ? 0x7fffffff : wish;
}

static inline void mixed_init(struct sock *sk)
{
	struct xcp_flow *flow = bpf_sk_storage_get(&sh_xcp, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	struct tcp_sock *tp = tcp(sk);
	struct mixed *own = mixed(sk);
	int flags = 0;

	__builtin_memset(own, 0, sizeof(*own));
	own->end_to_end = tp->snd_cwnd;
	own->window = tp->snd_cwnd * Q16;
	own->round_end = tp->snd_nxt;
	if (!flow)
		return;
	own->seen = flow->granted;
	own->heard = flow->heard;
	bpf_getsockopt(sk, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	flags |= BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG | BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG;
	if (bpf_setsockopt(sk, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags)))
		return;
	flow->is_sender = 1;
	publish(tp, flow);
}

/* The option goes with the control. */
static inline void mixed_release(struct sock *sk)
{
	struct xcp_flow *flow = bpf_sk_storage_get(&sh_xcp, sk, 0, 0);

	if (flow)
		flow->is_sender = 0;
}

/* XCP: cwnd <- max(cwnd + feedback, one segment), and not more than the peer takes. */
static inline void take_feedback(struct tcp_sock *tp, struct mixed *own, struct xcp_flow *flow)
{
	/* 1/16 byte; its part of a segment in Q16 is 4096/MSS. The kernel's MSS includes our option. */
	__u64 payload = tp->mss_cache - XCP_FORWARD_LEN;
	__s64 change = (__s32)(flow->granted - own->seen);
	__u64 size = change < 0 ? -change : change;
	__u64 most = receive_window(tp) * Q16;

	own->seen = flow->granted;
	if (tp->mss_cache <= XCP_FORWARD_LEN)
		return;
	size = size * 4096 / payload;
	if (change < 0)
		own->window = own->window > size + Q16 ? own->window - size : Q16;
	else
		own->window += size;
	if (own->window > most && most)
		own->window = most;
}

/* Once per round trip: does the peer still answer? */
static inline void listen(struct tcp_sock *tp, struct mixed *own, struct xcp_flow *flow)
{
	if (!own->is_heard && flow->heard != own->heard) {
		own->is_heard = 1;
		own->silent_rounds = 0;
		own->seen = flow->granted;
		own->window = tp->snd_cwnd * Q16;
	}
	if (!after(tp->snd_una, own->round_end))
		return;
	own->round_end = tp->snd_nxt;
	if (flow->heard == own->heard) {
		own->is_heard = 0;
		if (own->silent_rounds++ >= ROUNDS_OF_HOPE)
			flow->is_sender = 0;
	}
	own->heard = flow->heard;
}

static inline void mixed_ack(struct sock *sk)
{
	struct xcp_flow *flow = bpf_sk_storage_get(&sh_xcp, sk, 0, 0);
	struct tcp_sock *tp = tcp(sk);
	struct mixed *own = mixed(sk);

	if (!flow)
		return;
	listen(tp, own, flow);
	if (own->is_heard)
		take_feedback(tp, own, flow);
	publish(tp, flow);
}

/* The window that both halves allow; at least one segment. */
static inline __u32 smaller(const struct mixed *own)
{
	__u64 window = own->window >> 16;

#ifdef ALONE
	if (own->is_heard)
		return window ? window : 1;
#endif
	if (!own->is_heard || own->end_to_end < window)
		return own->end_to_end;
	return window ? window : 1;
}

static inline void bound_by(struct mixed *own)
{
#ifndef ALONE
	__u64 most = LEAD * own->end_to_end * Q16;

	if (own->window > most)
		own->window = most;
#endif
}

#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)

SEC("struct_ops")
void BPF_PROG(on_init, struct sock *sk)
{
	half_init(sk);
	mixed_init(sk);
	COUNT(sockets, 1);
}

SEC("struct_ops")
void BPF_PROG(on_release, struct sock *sk)
{
	mixed_release(sk);
	COUNT(sockets, -1);
}

SEC("struct_ops")
void BPF_PROG(on_ack, struct sock *sk, __u32 flags)
{
	mixed_ack(sk);
}

SEC("struct_ops")
void BPF_PROG(on_acked, struct sock *sk, const struct ack_sample *sample)
{
	half_acked(sk, sample);
}

SEC("struct_ops")
void BPF_PROG(on_growth, struct sock *sk, __u32 ack, __u32 acked)
{
	struct tcp_sock *tp = tcp(sk);
	struct mixed *own = mixed(sk);
	__u32 used = tp->snd_cwnd;

	if (!own->is_heard)
		own->end_to_end = used;
	if (own->end_to_end < LEAD * used) {
		tp->snd_cwnd = own->end_to_end;
		half_grow(sk, ack, acked);
		own->end_to_end = tp->snd_cwnd;
	}
	bound_by(own);
	tp->snd_cwnd = smaller(own);
}

SEC("struct_ops")
__u32 BPF_PROG(on_loss, struct sock *sk)
{
	struct tcp_sock *tp = tcp(sk);
	struct mixed *own = mixed(sk);
	__u32 used = tp->snd_cwnd;

	COUNT(congestion, 1);
	if (own->is_heard)
		tp->snd_cwnd = own->end_to_end;
	own->end_to_end = half_ssthresh(sk);
	tp->snd_cwnd = used;
	own->window = own->window > 4 * Q16 ? own->window / 2 : 2 * Q16;
	return smaller(own);
}

SEC("struct_ops")
void BPF_PROG(on_state, struct sock *sk, __u8 state)
{
	struct mixed *own = mixed(sk);

	half_state(sk, state);
	if (state == TCP_CA_LOSS) {
		COUNT(timeouts, 1);
		own->end_to_end = tcp(sk)->snd_cwnd;
		own->window = own->end_to_end * Q16;
	}
}

SEC("struct_ops")
void BPF_PROG(on_event, struct sock *sk, enum tcp_ca_event event)
{
	half_event(sk, event);
}

SEC("struct_ops")
__u32 BPF_PROG(on_undo, struct sock *sk)
{
	struct mixed *own = mixed(sk);
	__u32 before = before_reduction(tcp(sk));

	if (own->end_to_end < before)
		own->end_to_end = before;
	if (own->window < before * Q16)
		own->window = before * Q16;
	return before;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops CONTROL = {
	.init = (void *)on_init,
	.release = (void *)on_release,
	.in_ack_event = (void *)on_ack,
	.pkts_acked = (void *)on_acked,
	.cong_avoid = (void *)on_growth,
	.ssthresh = (void *)on_loss,
	.set_state = (void *)on_state,
	.cwnd_event = (void *)on_event,
	.undo_cwnd = (void *)on_undo,
	.flags = FOR_EVERYBODY,
	.name = TEXT(CONTROL),
};

#endif
