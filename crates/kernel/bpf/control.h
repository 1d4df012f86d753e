// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// The common ground of the congestion controls: options, counters, growth of the window.
//
// A control defines COUNTERS, the name of its map of counters, before it includes this.
#ifndef STARHOP_CONTROL_H
#define STARHOP_CONTROL_H

#include "arithmetic.h"
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Set by the loader before the program is verified; the order is the one in src/control.rs. */
const volatile __u64 options[4] SEC(".rodata.options");

/* Over all sockets of the kernel; src/control.rs names them. */
struct counters {
	__u64 sockets;
	__u64 random;
	__u64 unclear;
	__u64 congestion;
	__u64 timeouts;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} COUNTERS SEC(".maps");

#define COUNT(field, by)                                                      \
	({                                                                    \
		__u32 first = 0;                                              \
		struct counters *all = bpf_map_lookup_elem(&COUNTERS, &first); \
		if (all)                                                      \
			__sync_fetch_and_add(&all->field, by);                \
	})

static inline struct tcp_sock *tcp(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* The 104 bytes that a control has of its own in a socket. */
static inline void *private(const struct sock *sk)
{
	return ((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static inline bool after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

static inline bool is_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

/* The window held the sender back, not the application: the kernel's tcp_is_cwnd_limited(). */
static inline bool is_window_limited(const struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return is_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

static inline __u32 in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
}

/* Whole segments that the peer takes. */
static inline __u32 receive_window(const struct tcp_sock *tp)
{
	__u32 mss = tp->mss_cache;

	return mss ? tp->snd_wnd / mss : 0;
}

/* Grows the window by `by` (Q16), keeps the rest in `fraction`, and stops at `bound`. Never shrinks it. */
static inline void grow(struct tcp_sock *tp, __u32 *fraction, __u64 by, __u64 bound)
{
	__u64 sum = by + *fraction;
	__u32 cwnd = tp->snd_cwnd;
	__u64 grown = cwnd + (sum >> 16);

	if (bound > tp->snd_cwnd_clamp)
		bound = tp->snd_cwnd_clamp;
	*fraction = sum & (Q16 - 1);
	if (grown > bound) {
		grown = bound;
		*fraction = 0;
	}
	if (grown > cwnd)
		tp->snd_cwnd = grown;
}

/* Reno's slow start up to the threshold; the segments of `acked` that are left for congestion avoidance. */
static inline __u32 slow_start(struct tcp_sock *tp, __u32 *fraction, __u32 acked)
{
	__u32 before = tp->snd_cwnd;
	__u32 room = tp->snd_ssthresh - before;

	grow(tp, fraction, acked * Q16, tp->snd_ssthresh);
	return acked > room ? acked - room : 0;
}

/* The window before a reduction that was a mistake. */
static inline __u32 before_reduction(const struct tcp_sock *tp)
{
	return tp->snd_cwnd > tp->prior_cwnd ? tp->snd_cwnd : tp->prior_cwnd;
}

#endif
