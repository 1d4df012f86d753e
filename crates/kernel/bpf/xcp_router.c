// SPDX-License-Identifier: MIT OR GPL-2.0-only
// "Dual MIT/GPL" in the words of the kernel, whose helpers are for GPL-compatible programs only.
// XCP's router at the egress of a device: reads the header in each segment, and lowers what it grants to what the link
// behind the device can carry. Looks into IP in IP; otherwise payload, ports and connections are opaque to it.
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <stddef.h>

#include <bpf/bpf_endian.h>

#include "xcp.h"
#include "xcp_controller.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct gnet_stats_queue {
	__u32 backlog;
};

struct Qdisc {
	struct gnet_stats_queue qstats;
};

struct net_device {
	struct Qdisc *qdisc;
};

struct sk_buff {
	struct net_device *dev;
	unsigned char *head;
	unsigned char *data;
	__u16 network_header;
};

#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

/* Set by the loader: struct xcp_settings. */
const volatile struct xcp_settings settings SEC(".rodata.options");

struct router {
	struct bpf_spin_lock lock;
	struct xcp_state state;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct router);
} xcp_router_state SEC(".maps");

/* One header inside another, no deeper. */
#define MOST_IP_HEADERS 2
#define MOST_OPTION_BYTES 40
/* Where things are, from the network header on. */
struct place {
	__u32 tcp;
	__u32 option;
	/* Bytes of all headers: each segment of an offloaded packet has them. */
	__u32 headers;
};

static inline int load(struct __sk_buff *skb, __u32 at, void *to, __u32 len)
{
	return bpf_skb_load_bytes_relative(skb, at, to, len, BPF_HDR_START_NET);
}

/* Bytes of the IP header at `at`, and its payload's protocol in the upper half; 0 for what has no TCP header to read,
 * such as a fragment. Not static, as the two below: the verifier walks through each once, not once per way to it. */
__noinline __u32 ip_header(struct __sk_buff *skb, __u32 at)
{
	struct iphdr v4;
	struct ipv6hdr v6;

	if (load(skb, at, &v4, sizeof(v4)))
		return 0;
	if (v4.version == 4)
		return v4.frag_off & bpf_htons(0x3fff) ? 0 : v4.protocol << 16 | v4.ihl * 4;
	if (v4.version != 6 || load(skb, at, &v6, sizeof(v6)))
		return 0;
	return v6.nexthdr << 16 | sizeof(v6);
}

/* The offset of the TCP header, or 0. */
__noinline __u32 find_tcp(struct __sk_buff *skb)
{
	__u32 at = 0, header, protocol;
	int depth;

	for (depth = 0; depth < MOST_IP_HEADERS; depth++) {
		header = ip_header(skb, at);
		protocol = header >> 16;
		at += header & 0xffff;
		if (protocol == IPPROTO_TCP)
			return at;
		if (protocol != IPPROTO_IPIP && protocol != IPPROTO_IPV6)
			return 0;
	}
	return 0;
}

struct search {
	__u8 options[MOST_OPTION_BYTES];
	__u32 at;
	__u32 found;
};

/* Looks at one option, and ends the loop with 1. */
static long next_option(__u32 step, void *context)
{
	struct search *search = context;
	__u32 at = search->at;
	const __u8 *option = search->options + at;

	if (at > MOST_OPTION_BYTES - XCP_FORWARD_LEN)
		return 1;
	if (option[0] == 1) {
		search->at = at + 1;
		return 0;
	}
	if (option[0] == XCP_KIND && (option[1] == XCP_FORWARD_LEN || option[1] == XCP_BOTH_LEN) &&
	    option[2] == XCP_EXID >> 8 && option[3] == (XCP_EXID & 0xff)) {
		search->found = 1;
		return 1;
	}
	if (!option[0] || option[1] < 2)
		return 1;
	search->at = at + option[1];
	return 0;
}

/* The offset of our option in the `len` bytes of options at `at`, or 0; senders write it at an even offset, which the
 * checksum's update relies on. */
__noinline __u32 find_option(struct __sk_buff *skb, __u32 at, __u32 len)
{
	struct search search = {};

	if (len < XCP_FORWARD_LEN || len > MOST_OPTION_BYTES || load(skb, at, search.options, len))
		return 0;
	/* A loop of this program would be walked through by the verifier as often as it may run. */
	bpf_loop(MOST_OPTION_BYTES, next_option, &search, 0);
	return search.found && !(search.at & 1) ? at + search.at : 0;
}

static bool find_place(struct __sk_buff *skb, struct place *place)
{
	struct tcphdr tcp;

	place->tcp = find_tcp(skb);
	if (!place->tcp || load(skb, place->tcp, &tcp, sizeof(tcp)) || tcp.doff * 4 < sizeof(tcp))
		return false;
	place->headers = place->tcp + tcp.doff * 4;
	place->option = find_option(skb, place->tcp + sizeof(tcp), tcp.doff * 4 - sizeof(tcp));
	return place->option;
}

static bool read_header(struct __sk_buff *skb, const struct place *place, struct xcp_header *header)
{
	struct xcp_forward forward;

	if (load(skb, place->option + 4, &forward, sizeof(forward)))
		return false;
	header->rtt = bpf_ntohl(forward.rtt_us);
	header->cwnd = bpf_ntohl(forward.cwnd_bytes);
	header->feedback = (__s32)bpf_ntohl(forward.feedback);
	if (header->rtt > LONGEST_RTT)
		header->rtt = LONGEST_RTT;
	return true;
}

static void write_feedback(struct __sk_buff *skb, __u32 link, const struct place *place, __s32 old, __s32 new)
{
	__u32 field = link + place->option + 4 + offsetof(struct xcp_forward, feedback);
	__be32 from = bpf_htonl(old), to = bpf_htonl(new);

	bpf_l4_csum_replace(skb, link + place->tcp + offsetof(struct tcphdr, check), from, to, sizeof(to));
	bpf_skb_store_bytes(skb, field, &to, sizeof(to), 0);
}

/* Bytes before the network header. Addresses are read as numbers: the verifier subtracts no pointers. */
static __u32 link_header(struct sk_buff *kernel)
{
	__u64 head = 0, data = 0;

	bpf_core_read(&head, sizeof(head), &kernel->head);
	bpf_core_read(&data, sizeof(data), &kernel->data);
	return head + kernel->network_header - data;
}

/* Counts a packet of `bytes`, and lowers what its header asks for, if it has one. Not static, see ip_header(). */
__noinline int control(struct xcp_header *header, __u32 has_header, __u64 bytes, __u64 backlog)
{
	struct xcp_settings set = {
		settings.capacity, settings.alpha,	 settings.beta,	   settings.gamma,
		settings.own,	   settings.queue_limit, settings.overhead,
	};
	__u32 first = 0;
	struct router *router = bpf_map_lookup_elem(&xcp_router_state, &first);
	__u64 now = bpf_ktime_get_ns() / 1000;

	if (!header || !router || !set.capacity || !bytes)
		return 0;
	bpf_spin_lock(&router->lock);
	if (has_header) {
		on_arrival(&router->state, &set, now, header, bytes, backlog);
		on_departure(&router->state, header, bytes);
	} else {
		on_arrival(&router->state, &set, now, 0, bytes, backlog);
	}
	bpf_spin_unlock(&router->lock);
	return 0;
}

SEC("tcx/egress")
int xcp_router(struct __sk_buff *skb)
{
	struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);
	struct xcp_header header = {};
	struct place place = {};
	__u32 link = link_header(kernel), segments = skb->gso_segs ? skb->gso_segs : 1;
	bool has_header = find_place(skb, &place) && read_header(skb, &place, &header);
	__s64 asked = header.feedback;

	control(&header, has_header,
		skb->len - link + (segments - 1) * place.headers + segments * settings.overhead,
		kernel->dev->qdisc->qstats.backlog);
	if (has_header && header.feedback != asked)
		write_feedback(skb, link, &place, asked, header.feedback);
	return TC_ACT_UNSPEC;
}
