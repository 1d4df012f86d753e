// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// XCP's two controllers (Katabi, Handley, Rohrs: Congestion Control for High Bandwidth-Delay Product Networks, SIGCOMM
// 2002) in integers: crates/sim/src/link/xcp.rs is the same in floats, and a test holds one against the other.
//
// Plain C: a test compiles it for the host. Rates are bytes per second, times us unless they say otherwise.
#ifndef STARHOP_XCP_CONTROLLER_H
#define STARHOP_XCP_CONTROLLER_H

#include <linux/types.h>
#include <stdbool.h>

/* A control interval before packets told a round trip; then at least and at most so long: sums must not round to
 * nothing, and one sender's word must not put the router to sleep. */
#define FIRST_INTERVAL 50000
#define LEAST_INTERVAL 1000
#define LONGEST_INTERVAL 5000000
/* The queue is watched over at least this long before it counts as standing. */
#define LEAST_WATCH 2000
/* No sender's round trip is longer. */
#define LONGEST_RTT 10000000
/* Per byte; more is not told. Within 31 bits of Q16. */
#define MOST_FEEDBACK 0x7fffffffLL

struct xcp_settings {
	/* Bytes per second. */
	__u64 capacity;
	/* Q16. */
	__u64 alpha;
	__u64 beta;
	__u64 gamma;
	/* Traffic without the header does not count. */
	__u64 own;
	/* Bytes that the queue behind this router holds; 0: no bound. */
	__u64 queue_limit;
	/* Bytes that the link adds to every packet. */
	__u64 overhead;
};

struct xcp_state {
	__u64 interval;
	__u64 began;
	/* Sums of the interval: bytes, those with a header, the sum of rtt s/cwnd in 1/256 us, that of rtt^2 s/cwnd in 4 us^2. */
	__u64 bytes;
	__u64 own_bytes;
	__u64 turns;
	__u64 rtt_turns;
	/* What may be handed out: rates at the beginning of the interval, and what is left of them. */
	__u64 positive;
	__u64 negative;
	__s64 positive_left;
	__s64 negative_left;
	__u64 last_turns;
	__u64 last_bytes;
	/* The queue behind a link of this capacity, by what came and what it can have carried. */
	__u64 queue;
	__u64 drained;
	/* The queue that did not drain. */
	__u64 standing;
	__u64 least;
	__u64 watched_until;
	bool is_watched;
	/* For whoever watches. */
	__u64 packets;
	__u64 headers;
	__u64 intervals;
	__u64 input;
};

struct xcp_header {
	__u64 rtt;
	__u64 cwnd;
	/* Bytes of window per byte, Q16. */
	__s64 feedback;
};

/* A sender that knows neither window nor round trip is granted nothing. */
static inline bool has_word(const struct xcp_header *header)
{
	return header->rtt && header->cwnd;
}

static inline __u64 turn_of(const struct xcp_header *header, __u64 bytes)
{
	return header->rtt * bytes * 256 / header->cwnd;
}

static inline __s64 at_least_zero(__s64 value)
{
	return value > 0 ? value : 0;
}

/* part of whole in Q16 times value, for values of either sign. */
static inline __s64 scaled(__s64 value, __u64 q16)
{
	__u64 size = value < 0 ? -value : value;
	__u64 result = size * q16 >> 16;

	return value < 0 ? -(__s64)result : (__s64)result;
}

/* Bytes at a rate over a time. */
static inline __u64 over(__u64 rate, __u64 us)
{
	return rate * us / 1000000;
}

/* The least queue that arriving packets found within a propagation delay. */
static inline void see_queue(struct xcp_state *state, const struct xcp_settings *set, __u64 now, __u64 queue)
{
	__u64 wait, watch;

	if (now >= state->watched_until) {
		state->standing = state->is_watched ? state->least : queue;
		state->is_watched = false;
		wait = queue * 1000000 / set->capacity;
		watch = state->interval > wait ? (state->interval - wait) / 2 : 0;
		state->watched_until = now + (watch > LEAST_WATCH ? watch : LEAST_WATCH);
	}
	if (!state->is_watched || queue < state->least)
		state->least = queue;
	state->is_watched = true;
}

/* phi = alpha d S - beta Q, and the shares of it that the fairness controller hands out. */
static inline void begin_interval(struct xcp_state *state, const struct xcp_settings *set, __u64 now)
{
	__u64 lasted = now - state->began;
	__u64 bytes = state->bytes, queue = state->standing, input, flow, shuffled;
	__s64 aggregate, size;

	if (set->own && bytes) {
		queue = queue * state->own_bytes / bytes;
		bytes = state->own_bytes;
	}
	if (state->turns) {
		state->interval = state->rtt_turns * 1024 / state->turns;
		if (state->interval < LEAST_INTERVAL)
			state->interval = LEAST_INTERVAL;
		if (state->interval > LONGEST_INTERVAL)
			state->interval = LONGEST_INTERVAL;
	}
	input = bytes * 1000000 / lasted;
	flow = over(input, state->interval);
	aggregate = scaled((__s64)over(set->capacity, state->interval) - (__s64)flow, set->alpha) - scaled(queue, set->beta);
	size = aggregate < 0 ? -aggregate : aggregate;
	shuffled = at_least_zero(scaled(flow, set->gamma) - size);
	state->positive = (shuffled + at_least_zero(aggregate)) * 1000000 / state->interval;
	state->negative = (shuffled + at_least_zero(-aggregate)) * 1000000 / state->interval;
	state->positive_left = state->positive;
	state->negative_left = state->negative;
	state->last_turns = state->turns;
	state->last_bytes = bytes;
	state->bytes = state->own_bytes = state->turns = state->rtt_turns = 0;
	state->began = now;
	state->input = input;
	state->intervals++;
}

/* The queue that a packet of `bytes` finds, and leaves longer. */
static inline __u64 virtual_queue(struct xcp_state *state, const struct xcp_settings *set, __u64 now, __u64 bytes)
{
	__u64 carried = over(set->capacity, now - state->drained);
	__u64 found;

	/* Time that is not a whole byte yet counts the next time. */
	if (carried) {
		state->queue = state->queue > carried ? state->queue - carried : 0;
		state->drained = now;
	}
	found = state->queue;
	if (!set->queue_limit || found + bytes <= set->queue_limit)
		state->queue += bytes;
	return found;
}

/* A packet arrives and finds at least `queue` bytes in the device's own queue. */
static inline __attribute__((always_inline)) void on_arrival(struct xcp_state *state, const struct xcp_settings *set, __u64 now,
			      const struct xcp_header *header, __u64 bytes, __u64 queue)
{
	__u64 found, turn;

	if (!state->began) {
		state->began = state->drained = now;
		state->interval = FIRST_INTERVAL;
	}
	found = virtual_queue(state, set, now, bytes);
	if (now >= state->began + state->interval)
		begin_interval(state, set, now);
	see_queue(state, set, now, found > queue ? found : queue);
	state->bytes += bytes;
	state->packets++;
	if (!header)
		return;
	state->headers++;
	state->own_bytes += bytes;
	if (has_word(header)) {
		turn = turn_of(header, bytes);
		state->turns += turn;
		state->rtt_turns += turn * header->rtt >> 10;
	}
}

/* A rate in 1/256 byte per second as growth over a round trip, bytes per byte in Q16. */
static inline __s64 per_byte(__u64 rate, __u64 rtt, __u64 bytes)
{
	return rate * rtt / bytes * 256 / 1000000;
}

/* The header leaves with at most what this router allows. */
static inline void on_departure(struct xcp_state *state, struct xcp_header *header, __u64 bytes)
{
	__u64 positive = 0, negative = 0;
	__s64 allowed, asked = header->feedback;

	if (!has_word(header) || !bytes) {
		if (asked > 0)
			header->feedback = 0;
		return;
	}
	if (state->last_turns && state->positive_left > 0)
		positive = state->positive * 256 * turn_of(header, bytes) / state->last_turns;
	if (state->last_bytes && state->negative_left > 0)
		negative = state->negative * 256 * bytes / state->last_bytes;
	allowed = per_byte(positive, header->rtt, bytes) - per_byte(negative, header->rtt, bytes);
	if (allowed > MOST_FEEDBACK)
		allowed = MOST_FEEDBACK;
	if (asked > allowed) {
		header->feedback = allowed;
		state->positive_left -= positive >> 8;
		state->negative_left -= negative >> 8;
		return;
	}
	/* Another router, or the sender itself, allows less: what it did not take counts as taken back. */
	state->positive_left -= (__u64)at_least_zero(asked) * bytes / header->rtt * 1000000 >> 16;
	state->negative_left -= (__u64)(at_least_zero(allowed) - asked) * bytes / header->rtt * 1000000 >> 16;
}

#endif
