// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// CUBIC-XCP: SatERN's sender with the kernel's own CUBIC as its end-to-end half. CUBIC's private state takes 60 bytes.
#define COUNTERS n_cubic_xcp
#define CONTROL cubic_xcp
#include "control.h"

extern void cubictcp_init(struct sock *sk) __ksym;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym;
extern void cubictcp_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern __u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym;
extern void cubictcp_state(struct sock *sk, __u8 state) __ksym;
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym;

#define half_init cubictcp_init
#define half_acked cubictcp_acked
#define half_grow cubictcp_cong_avoid
#define half_ssthresh cubictcp_recalc_ssthresh
#define half_state cubictcp_state
#define half_event cubictcp_cwnd_event

#include "mixed.h"
