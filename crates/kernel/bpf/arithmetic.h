// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// Fixed-point arithmetic of the controls, in plain C: a test compiles it for the host and compares it with floats.
//
// Q16 is a number times 65536. A window of 2^20 segments, a round trip of 10 s and 2^16 segments in one
// acknowledgement overflow nothing here.
#ifndef STARHOP_ARITHMETIC_H
#define STARHOP_ARITHMETIC_H

#include <linux/types.h>

#define Q16 65536ULL
/* Growth beyond 2^24 segments per acknowledged one is growth to the receive window, whatever its number. */
#define MOST_DOUBLINGS 24

/* Hybla's rho, RTT/RTT0 in Q16, at least one. Rounded down: less than 1/65536 too small. */
static inline __u64 rho(__u64 rtt_us, __u64 rtt0_us)
{
	__u64 ratio;

	if (!rtt0_us)
		return Q16;
	ratio = rtt_us * Q16 / rtt0_us;
	return ratio > Q16 ? ratio : Q16;
}

/* 2^rho - 1 in Q16. The fraction's power is a cubic through both ends of [0, 1]: wrong by less than 0.02 %. */
static inline __u64 exp2_less_one(__u64 rho)
{
	__u64 whole = rho >> 16;
	__u64 f = rho & (Q16 - 1);
	__u64 power;

	if (whole >= MOST_DOUBLINGS)
		return (Q16 << MOST_DOUBLINGS) - Q16;
	/* 1 + 0.695557 f + 0.226174 f^2 + 0.078269 f^3 */
	power = (f * 5129) >> 16;
	power = (f * (14823 + power)) >> 16;
	power = (f * (45584 + power)) >> 16;
	return ((Q16 + power) << whole) - Q16;
}

/* Hybla's growth in congestion avoidance, acked * rho^2 / cwnd in Q16. Rounded down: less than 1/65536 segment. */
static inline __u64 hybla_avoidance(__u64 acked, __u64 rho, __u32 cwnd)
{
	if (!cwnd)
		return 0;
	if (rho > Q16 << 10)
		rho = Q16 << 10;
	return acked * ((rho * rho) >> 16) / cwnd;
}

/* Segments of a window that wait in queues, cwnd * (1 - base/rtt) in Q16 (Veno's N). Rounded down. */
static inline __u64 waiting(__u64 cwnd, __u64 base_us, __u64 rtt_us)
{
	if (!rtt_us || rtt_us <= base_us)
		return 0;
	return cwnd * (rtt_us - base_us) * Q16 / rtt_us;
}

/* part of whole, as part/of; at least two segments (RFC 5681, section 3.1, equation 4). */
static inline __u32 share(__u64 window, __u32 part, __u32 of)
{
	__u64 left = window * part / of;

	return left > 2 ? left : 2;
}

/* Segments per second in Q8, delivered over a time. Rounded down: less than 1/256 segment per second. */
static inline __u64 bandwidth(__u64 delivered, __u64 over_us)
{
	return over_us ? delivered * 256 * 1000000 / over_us : 0;
}

/* Westwood+'s sample of the bandwidth. */
struct sample {
	/* The segments that were delivered, and the time, at its beginning; 0 before the first acknowledgement. */
	__u64 began_us;
	__u32 began_delivered;
	/* Segments per second, Q8; 0 before the first sample. */
	__u64 bandwidth;
};

/* A sample takes a round trip, and not less than this, so that a burst is no rate. */
#define LEAST_SAMPLE_US 50000

/* Takes the state after an acknowledgement that delivered `acked` segments. The first sample begins with the first
 * acknowledgement: the round trip before it carries nothing, and would be an eighth of the estimate for long. */
static inline void see(struct sample *own, __u64 now_us, __u32 delivered, __u32 acked, __u64 srtt_us)
{
	__u64 lasted, rate;

	if (!own->began_us) {
		own->began_us = now_us;
		own->began_delivered = delivered - acked;
	}
	lasted = now_us - own->began_us;
	if (lasted < srtt_us || lasted < LEAST_SAMPLE_US)
		return;
	rate = bandwidth(delivered - own->began_delivered, lasted);
	own->bandwidth = own->bandwidth ? (7 * own->bandwidth + rate) / 8 : rate;
	own->began_us = now_us;
	own->began_delivered = delivered;
}

/* Segments that a bandwidth (Q8) keeps under way over a round trip. */
static inline __u64 under_way(__u64 bandwidth, __u64 rtt_us)
{
	return bandwidth * rtt_us / (256 * 1000000ULL);
}

#endif
