// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// Segments that wait in queues, measured once per round trip: for Veno and Hybla-Veno.
#ifndef STARHOP_BACKLOG_H
#define STARHOP_BACKLOG_H

#include "control.h"

struct backlog {
	/* The shortest round trips of the connection and of the present round; 0 before the first. */
	__u32 base_us;
	__u32 round_us;
	/* The round ends when something sent from here on is acknowledged. */
	__u32 round_end;
	/* N at the end of the last round, 1/256 segment. */
	__u32 waiting;
};

static inline void begin_round(struct backlog *backlog, const struct tcp_sock *tp)
{
	backlog->round_us = 0;
	backlog->round_end = tp->snd_nxt;
}

static inline void measure(struct backlog *backlog, const struct tcp_sock *tp, __s32 rtt_us)
{
	if (after(tp->snd_una, backlog->round_end)) {
		if (backlog->round_us)
			backlog->waiting = waiting(tp->snd_cwnd, backlog->base_us, backlog->round_us) >> 8;
		begin_round(backlog, tp);
	}
	if (rtt_us <= 0)
		return;
	if (!backlog->base_us || rtt_us < backlog->base_us)
		backlog->base_us = rtt_us;
	if (!backlog->round_us || rtt_us < backlog->round_us)
		backlog->round_us = rtt_us;
}

#endif
