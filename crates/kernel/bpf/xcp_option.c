// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// Writes XCP's header into the segments of senders that speak XCP, and what came of it into their peers'
// acknowledgements. Any socket of the control group is a peer, whatever its control.
#include <linux/tcp.h>
#include <stddef.h>

#include <bpf/bpf_endian.h>

#include "xcp.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct option {
	__u8 kind;
	__u8 len;
	__be16 exid;
	union {
		struct {
			struct xcp_forward forward;
			__be32 reverse_too;
		} __attribute__((packed));
		__be32 reverse;
	};
} __attribute__((packed));

static struct xcp_flow *flow_of(struct bpf_sock_ops *ops, __u64 flags)
{
	struct bpf_sock *sk = ops->sk;

	return sk ? bpf_sk_storage_get(&sh_xcp, sk, 0, flags) : 0;
}

/* Bytes of the option in a segment with `room` for it: both parts, the one for routers first, or nothing. */
static int length(const struct xcp_flow *flow)
{
	if (flow->is_sender)
		return flow->is_receiver ? XCP_BOTH_LEN : XCP_FORWARD_LEN;
	return flow->is_receiver ? XCP_REVERSE_LEN : 0;
}

/* The next shorter form; the running sum is told by a later segment. */
static int shorter(int len)
{
	return len == XCP_BOTH_LEN ? XCP_FORWARD_LEN : 0;
}

static void reserve(struct bpf_sock_ops *ops)
{
	struct xcp_flow *flow = flow_of(ops, 0);
	int len = flow ? length(flow) : 0;

	if (len && bpf_reserve_hdr_opt(ops, len, 0) && shorter(len))
		bpf_reserve_hdr_opt(ops, shorter(len), 0);
}

static void write(struct bpf_sock_ops *ops)
{
	struct xcp_flow *flow = flow_of(ops, 0);
	int len = flow ? length(flow) : 0;
	struct option option = { .kind = XCP_KIND, .len = len, .exid = bpf_htons(XCP_EXID) };

	if (!len)
		return;
	if (len == XCP_REVERSE_LEN) {
		option.reverse = bpf_htonl(flow->received);
	} else {
		option.forward.rtt_us = bpf_htonl(flow->rtt_us);
		option.forward.cwnd_bytes = bpf_htonl(flow->cwnd_bytes);
		option.forward.feedback = bpf_htonl(flow->wish);
		option.reverse_too = bpf_htonl(flow->received);
	}
	if (bpf_store_hdr_opt(ops, &option, len, 0) && shorter(len)) {
		option.len = shorter(len);
		bpf_store_hdr_opt(ops, &option, shorter(len), 0);
	}
}

/* Bytes after the TCP header; receive offload may have merged segments whose headers are equal. */
static __u32 payload(const struct bpf_sock_ops *ops)
{
	const struct tcphdr *header = (void *)(long)ops->skb_data;
	__u32 len = ops->skb_len;
	__u32 headers;

	if ((void *)(header + 1) > (void *)(long)ops->skb_data_end)
		return 0;
	headers = header->doff * 4;
	return len > headers ? len - headers : 0;
}

static void take_reverse(struct xcp_flow *flow, __be32 sum)
{
	flow->granted = bpf_ntohl(sum);
	flow->heard++;
}

static void parse(struct bpf_sock_ops *ops)
{
	/* Looked for by kind and identifier, which is what a length of 4 says. */
	struct option option = { .kind = XCP_KIND, .len = 4, .exid = bpf_htons(XCP_EXID) };
	int len = bpf_load_hdr_opt(ops, &option, sizeof(option), 0);
	struct xcp_flow *flow;

	if (len < XCP_REVERSE_LEN)
		return;
	flow = flow_of(ops, len == XCP_REVERSE_LEN ? 0 : BPF_SK_STORAGE_GET_F_CREATE);
	if (!flow)
		return;
	if (len == XCP_REVERSE_LEN) {
		take_reverse(flow, option.reverse);
		return;
	}
	if (len != XCP_FORWARD_LEN && len != XCP_BOTH_LEN)
		return;
	if (len == XCP_BOTH_LEN)
		take_reverse(flow, option.reverse_too);
	flow->received += (__s64)(__s32)bpf_ntohl(option.forward.feedback) * payload(ops) >> 12;
	if (!flow->is_receiver) {
		flow->is_receiver = 1;
		bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	}
}

SEC("sockops")
int xcp_option(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		/* Costs nothing until a segment has an option that the kernel does not know. */
		bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		parse(ops);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		reserve(ops);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		write(ops);
		break;
	}
	return 1;
}
