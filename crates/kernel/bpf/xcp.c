// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// XCP's sender (Katabi, Handley, Rohrs: Congestion Control for High Bandwidth-Delay Product Networks, SIGCOMM 2002):
// the window is what routers allow, and a loss halves it. While nobody answers it is the kernel's reno.
#define COUNTERS n_xcp
#define CONTROL xcp
#define ALONE
#include "control.h"

extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern __u32 tcp_reno_ssthresh(struct sock *sk) __ksym;

static inline void half_init(struct sock *sk)
{
}

static inline void half_acked(struct sock *sk, const struct ack_sample *sample)
{
}

#define half_grow tcp_reno_cong_avoid
#define half_ssthresh tcp_reno_ssthresh

static inline void half_state(struct sock *sk, __u8 state)
{
}

static inline void half_event(struct sock *sk, enum tcp_ca_event event)
{
}

#include "mixed.h"
