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
#define MOST_OPTIONS 40

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

/* Bytes of the IP header at `at`; its payload's protocol in `protocol`. Fragments have no TCP header to read. */
static __u32 ip_header(struct __sk_buff *skb, __u32 at, __u8 *protocol)
{
	struct iphdr v4;
	struct ipv6hdr v6;

	if (load(skb, at, &v4, sizeof(v4)))
		return 0;
	if (v4.version == 4) {
		if (v4.frag_off & bpf_htons(0x3fff))
			return 0;
		*protocol = v4.protocol;
		return v4.ihl * 4;
	}
	if (v4.version != 6 || load(skb, at, &v6, sizeof(v6)))
		return 0;
	*protocol = v6.nexthdr;
	return sizeof(v6);
}

/* The offset of the TCP header, or 0. */
static __u32 find_tcp(struct __sk_buff *skb)
{
	__u32 at = 0, len;
	__u8 protocol = 0;
	int depth;

	for (depth = 0; depth < MOST_IP_HEADERS; depth++) {
		len = ip_header(skb, at, &protocol);
		if (!len)
			return 0;
		at += len;
		if (protocol == IPPROTO_TCP)
			return at;
		if (protocol != IPPROTO_IPIP && protocol != IPPROTO_IPV6)
			return 0;
	}
	return 0;
}

/* Finds our option; senders write it at an even offset, which the checksum's update relies on. */
static bool find_option(struct __sk_buff *skb, struct place *place)
{
	__u8 options[MOST_OPTIONS] = {};
	struct tcphdr tcp;
	__u32 len, at = 0;
	int steps;

	place->tcp = find_tcp(skb);
	if (!place->tcp || load(skb, place->tcp, &tcp, sizeof(tcp)))
		return false;
	len = tcp.doff * 4;
	place->headers = place->tcp + len;
	if (len < sizeof(tcp) + XCP_FORWARD_LEN || len > sizeof(tcp) + MOST_OPTIONS)
		return false;
	len -= sizeof(tcp);
	if (load(skb, place->tcp + sizeof(tcp), options, len))
		return false;
	for (steps = 0; steps < MOST_OPTIONS; steps++) {
		if (at > MOST_OPTIONS - XCP_FORWARD_LEN)
			return false;
		if (options[at] == 1) {
			at++;
			continue;
		}
		if (options[at] == XCP_KIND && (options[at + 1] == XCP_FORWARD_LEN || options[at + 1] == XCP_BOTH_LEN) &&
		    options[at + 2] == XCP_EXID >> 8 && options[at + 3] == (XCP_EXID & 0xff)) {
			place->option = place->tcp + sizeof(tcp) + at;
			return !(at & 1);
		}
		if (!options[at] || options[at + 1] < 2)
			return false;
		at += options[at + 1];
	}
	return false;
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

SEC("tcx/egress")
int xcp_router(struct __sk_buff *skb)
{
	struct xcp_settings set = {
		settings.capacity, settings.alpha,	 settings.beta,	   settings.gamma,
		settings.own,	   settings.queue_limit, settings.overhead,
	};
	struct sk_buff *kernel = bpf_cast_to_kern_ctx(skb);
	struct xcp_header header = {};
	struct place place = {};
	__u32 first = 0, link, segments = skb->gso_segs ? skb->gso_segs : 1;
	struct router *router = bpf_map_lookup_elem(&xcp_router_state, &first);
	bool has_header = find_option(skb, &place) && read_header(skb, &place, &header);
	__u64 backlog = kernel->dev->qdisc->qstats.backlog;
	__u64 now = bpf_ktime_get_ns() / 1000, bytes;
	__s64 asked = has_header ? header.feedback : 0;

	link = link_header(kernel);
	bytes = skb->len - link + (segments - 1) * place.headers + segments * set.overhead;
	if (!router || !set.capacity || !bytes)
		return TC_ACT_UNSPEC;
	bpf_spin_lock(&router->lock);
	on_arrival(&router->state, &set, now, has_header ? &header : 0, bytes, backlog);
	if (has_header)
		on_departure(&router->state, &header, bytes);
	bpf_spin_unlock(&router->lock);
	if (has_header && header.feedback != asked)
		write_feedback(skb, link, &place, asked, header.feedback);
	return TC_ACT_UNSPEC;
}
