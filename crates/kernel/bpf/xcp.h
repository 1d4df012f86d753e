// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// XCP's congestion header as a TCP option, and what a connection remembers of it. docs/PROTOCOL.md has the layout.
#ifndef STARHOP_XCP_H
#define STARHOP_XCP_H

#include "kernel.h"

/* RFC 6994: a shared experimental kind, told apart by 16 bits. */
#define XCP_KIND 253
#define XCP_EXID 0x5848

/* Lengths with kind, length and identifier. */
#define XCP_REVERSE_LEN 8
#define XCP_FORWARD_LEN 16
#define XCP_BOTH_LEN 20

/* Rates of growth in the header are bytes of window per byte of payload, Q16. */
struct xcp_forward {
	__be32 rtt_us;
	__be32 cwnd_bytes;
	__be32 feedback;
} __attribute__((packed));

/* Kept per connection; the control writes what leaves, the option's program what arrives. */
struct xcp_flow {
	/* Of our sender: for the next header. */
	__u32 is_sender;
	__u32 rtt_us;
	__u32 cwnd_bytes;
	__s32 wish;
	/* To our sender: the running sum of what the peer received, 1/16 byte, and how often it was told. */
	__u32 granted;
	__u32 heard;
	/* Of our receiver: the running sum to tell, 1/16 byte. */
	__u32 is_receiver;
	__u32 received;
};

/* The loader lets every program of the family use the same map. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct xcp_flow);
} sh_xcp SEC(".maps");

#endif
