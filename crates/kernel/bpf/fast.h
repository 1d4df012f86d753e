// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// FAST (Jin, Wei, Low: FAST TCP: motivation, architecture, algorithms, performance, IEEE INFOCOM 2004): once per round
// trip w <- min(2w, (1 - gamma) w + gamma (baseRTT/RTT w + alpha)). In equilibrium alpha segments wait in queues.
#ifndef STARHOP_FAST_H
#define STARHOP_FAST_H

#include "control.h"

/* Segments. */
#define ALPHA options[0]
/* Per cent. */
#define GAMMA options[1]

struct fast {
	/* Moving mean of the round trip, 1/256 us; 0 before the first. */
	__u64 mean_rtt;
	/* The shortest round trip; 0 before the first. */
	__u32 base_us;
	__u32 round_end;
	/* Growth of the window per acknowledged segment in this round, Q16, and where it ends, segments. */
	__u32 step;
	__u32 target;
	__u32 fraction;
};

static inline void fast_begin(struct fast *own, const struct tcp_sock *tp)
{
	__builtin_memset(own, 0, sizeof(*own));
	own->round_end = tp->snd_nxt;
}

/* Each segment has the weight min(3/w, 1/4) in the mean. */
static inline void fast_measure(struct fast *own, const struct tcp_sock *tp, const struct ack_sample *sample)
{
	__u64 rtt_us = sample->rtt_us;
	__u64 weight;

	if (sample->rtt_us <= 0 || !tp->snd_cwnd)
		return;
	if (!own->base_us || rtt_us < own->base_us)
		own->base_us = rtt_us;
	weight = 3 * sample->pkts_acked * 256ULL / tp->snd_cwnd;
	if (weight > 64)
		weight = 64;
	own->mean_rtt = own->mean_rtt ? (own->mean_rtt * (256 - weight) >> 8) + rtt_us * weight : rtt_us << 8;
}

/* The window of the next round, once per round trip. */
static inline void fast_update(struct fast *own, struct tcp_sock *tp)
{
	__u64 cwnd = tp->snd_cwnd;
	__u64 moving, target;

	if (!own->mean_rtt || !cwnd)
		return;
	moving = ((cwnd * own->base_us) << 24) / own->mean_rtt + (ALPHA << 16);
	target = ((100 - GAMMA) * (cwnd << 16) + GAMMA * moving) / 100 >> 16;
	if (target > 2 * cwnd)
		target = 2 * cwnd;
	if (target < 2)
		target = 2;
	own->target = target;
	own->step = target > cwnd ? (target - cwnd) * Q16 / cwnd : 0;
	if (target < cwnd)
		tp->snd_cwnd = target;
}

/* An addition is spread over the round: a jump would be a burst. */
static inline void fast_grow(struct fast *own, struct tcp_sock *tp, __u32 acked)
{
	if (after(tp->snd_una, own->round_end)) {
		own->round_end = tp->snd_nxt;
		fast_update(own, tp);
	}
	if (own->step && is_window_limited(tp))
		grow(tp, &own->fraction, (__u64)acked * own->step, own->target);
}

static inline __u32 fast_reduce(struct fast *own, const struct tcp_sock *tp)
{
	own->step = 0;
	own->fraction = 0;
	return share(tp->snd_cwnd, 1, 2);
}

#endif
