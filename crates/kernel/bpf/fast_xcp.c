// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// FAST-XCP: SatERN's sender with FAST as its end-to-end half.
#define COUNTERS n_fast_xcp
#define CONTROL fast_xcp
#include "fast.h"

static inline void half_init(struct sock *sk)
{
	fast_begin(private(sk), tcp(sk));
}

static inline void half_acked(struct sock *sk, const struct ack_sample *sample)
{
	fast_measure(private(sk), tcp(sk), sample);
}

static inline void half_grow(struct sock *sk, __u32 ack, __u32 acked)
{
	fast_grow(private(sk), tcp(sk), acked);
}

static inline __u32 half_ssthresh(struct sock *sk)
{
	return fast_reduce(private(sk), tcp(sk));
}

static inline void half_state(struct sock *sk, __u8 state)
{
	struct fast *own = private(sk);

	if (state == TCP_CA_LOSS)
		own->mean_rtt = 0;
}

static inline void half_event(struct sock *sk, enum tcp_ca_event event)
{
}

#include "mixed.h"
