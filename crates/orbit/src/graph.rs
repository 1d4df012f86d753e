//! Shortest-path trees over a graph whose links change length at every step.
//!
//! [`Search::grow`] builds a tree from nothing: Dijkstra with buckets of distance for a queue (Dial, CACM 12(11), 1969).
//! [`Search::repair`] brings a tree up to date: it walks the old tree with the new lengths, looks once at every link for
//! a short cut, and lets improvements spread. A satellite network's lengths all change in a second, its trees hardly do.

use std::ops::Range;

/// Stands for no node, no link.
pub const NONE: u32 = u32::MAX;

/// Lengths inside a search are whole numbers of this unit, m: 0.4 ns of light. A path of n links may be chosen that is
/// longer than the shortest by at most n of them. Whole numbers make ties exact, and searches twice as fast.
pub const UNIT_M: f64 = 0.125;

/// No way: longer than any path (268 435 km), and twice it still fits.
pub(crate) const FAR: u32 = (1 << 31) - 1;

/// A length in units; a link that is down or longer than 134 000 km does not exist.
pub(crate) fn units(length_m: f64) -> u32 {
    let whole = length_m / UNIT_M;
    if whole < f64::from(FAR / 2) { (whole + 0.5) as u32 } else { FAR }
}

/// A way out of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arc {
    /// The neighbour.
    pub to: u32,
    /// The link to the neighbour, an index into the list of lengths.
    pub link: u32,
}

/// Nodes and undirected links in compressed rows.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    offsets: Vec<u32>,
    arcs: Vec<Arc>,
    links: Vec<(u32, u32)>,
    runs: Vec<Run>,
}

/// Links that follow each other in the list and whose ends do so too: (a, b), (a + 1, b + 1), …
#[derive(Clone, Copy, Debug)]
struct Run {
    first: usize,
    count: usize,
}

impl Graph {
    /// A graph of nodes 0 to `nodes` - 1; a link's number is its place in `links`. Repairs are fastest if links are
    /// sorted by the difference of their ends.
    ///
    /// # Panics
    /// If a link names a node that is not there.
    pub fn new(nodes: u32, links: Vec<(u32, u32)>) -> Self {
        let mut offsets = vec![0u32; nodes as usize + 1];
        for &(a, b) in &links {
            offsets[a as usize + 1] += 1;
            offsets[b as usize + 1] += 1;
        }
        for i in 1..offsets.len() {
            offsets[i] += offsets[i - 1];
        }
        let mut fill = offsets.clone();
        let mut arcs = vec![Arc { to: NONE, link: NONE }; links.len() * 2];
        for (link, &(a, b)) in (0u32..).zip(&links) {
            for (from, to) in [(a, b), (b, a)] {
                arcs[fill[from as usize] as usize] = Arc { to, link };
                fill[from as usize] += 1;
            }
        }
        let follows = |a: &(u32, u32), b: &(u32, u32)| (a.0 + 1, a.1 + 1) == *b;
        let mut first = 0;
        let run = |links: &[(u32, u32)]| {
            let run = Run { first, count: links.len() };
            first += links.len();
            run
        };
        // A short cut anywhere in a run has all of it looked at again: runs are kept short.
        let runs = links.chunk_by(follows).flat_map(|r| r.chunks(64)).map(run).collect();
        Self { offsets, arcs, links, runs }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// The links, by number.
    pub fn links(&self) -> &[(u32, u32)] {
        &self.links
    }

    /// The ways out of a node.
    pub fn arcs(&self, node: u32) -> &[Arc] {
        &self.arcs[self.row(node)]
    }

    #[inline]
    fn row(&self, node: u32) -> Range<usize> {
        self.offsets[node as usize] as usize..self.offsets[node as usize + 1] as usize
    }
}

/// The hop of a node that has none.
const STRAIGHT: Arc = Arc { to: NONE, link: NONE };

/// Shortest ways from all nodes to one destination.
///
/// The destination itself is outside of the graph: seeds are the nodes that reach it directly.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Units to the destination, or [`FAR`].
    distance: Vec<u32>,
    /// Next hops; [`STRAIGHT`] means to the destination, or nowhere.
    hop: Vec<Arc>,
    /// All nodes, each after its next hop.
    order: Vec<u32>,
    /// Compares like places in `order`.
    rank: Vec<u32>,
}

impl Tree {
    /// A tree of no ways over `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        let order: Vec<u32> = (0..nodes as u32).collect();
        Self { distance: vec![FAR; nodes], hop: vec![STRAIGHT; nodes], rank: order.clone(), order }
    }

    /// Distance from a node to the destination in units of [`UNIT_M`]; `None` if there is no way.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn distance(&self, node: u32) -> Option<u32> {
        Some(self.distance[node as usize]).filter(|&d| d < FAR)
    }

    /// The way out of a node; its `to` is [`NONE`] if the destination is next, or if there is no way.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn hop(&self, node: u32) -> Arc {
        self.hop[node as usize]
    }

    /// Like [`Tree::distance`] for all nodes, with a number beyond all distances for no way.
    pub(crate) fn distances(&self) -> &[u32] {
        &self.distance
    }

    /// The nodes from `node` to the last one before the destination.
    pub fn walk(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let next = |&at: &u32| Some(self.hop(at).to).filter(|&to| to != NONE);
        std::iter::successors(Some(node), next)
    }

    /// Makes an order of the visits: a node's last visit comes after the last visit of its next hop. Nodes never reached
    /// go last.
    fn settle_order(&mut self) {
        let nodes = self.distance.len();
        let rank = &mut self.rank;
        if self.order.len() > nodes {
            let mut visit = 0;
            self.order.retain(|&node| {
                visit += 1;
                rank[node as usize] == visit - 1
            });
        }
        if self.order.len() < nodes {
            for (node, _) in (0u32..).zip(&self.distance).filter(|&(_, &d)| d >= FAR) {
                rank[node as usize] = NONE;
                self.order.push(node);
            }
        }
    }

    /// Insertion sort: the order is nearly right, so this takes about one look at each node.
    fn sort_by_distance(&mut self) {
        let Self { distance, order, rank, .. } = self;
        for i in 1..order.len() {
            let node = order[i];
            let mut at = i;
            while at > 0 && distance[order[at - 1] as usize] > distance[node as usize] {
                order[at] = order[at - 1];
                at -= 1;
            }
            order[at] = node;
        }
        for (place, &node) in (0u32..).zip(order.iter()) {
            rank[node as usize] = place;
        }
    }
}

/// A queue of nodes by distance: one list per stretch of distance, all in one pool.
///
/// A node may be in it several times. An entry is stale if the node was visited since, at the distance that it has now.
#[derive(Clone, Debug, Default)]
struct Buckets {
    /// A bucket is 2 to this power units wide.
    shift: u32,
    heads: Vec<u32>,
    /// Node, and the next entry of the same list.
    pool: Vec<(u32, u32)>,
    /// Entries taken out.
    taken: usize,
    lowest: usize,
}

impl Buckets {
    fn begin(&mut self) {
        self.pool.clear();
        (self.taken, self.lowest) = (0, 0);
        let buckets = (FAR >> self.shift) as usize + 1;
        if self.heads.len() < buckets {
            self.heads.resize(buckets, NONE);
        }
    }

    #[inline]
    fn put(&mut self, node: u32, distance: u32) {
        let head = &mut self.heads[(distance >> self.shift) as usize];
        self.pool.push((node, *head));
        *head = self.pool.len() as u32 - 1;
    }

    /// Takes out a node of the lowest bucket, stale or not.
    #[inline]
    fn take(&mut self) -> Option<u32> {
        if self.taken == self.pool.len() {
            return None;
        }
        while self.heads[self.lowest] == NONE {
            self.lowest += 1;
        }
        let (node, next) = self.pool[self.heads[self.lowest] as usize];
        self.heads[self.lowest] = next;
        self.taken += 1;
        Some(node)
    }
}

/// An arc of the graph with the length that it has now.
#[derive(Clone, Copy, Debug)]
struct Way {
    to: u32,
    link: u32,
    length: u32,
}

/// Working memory of the searches; one serves any number of trees over one graph.
#[derive(Clone, Debug, Default)]
pub struct Search {
    lengths: Vec<u32>,
    ways: Vec<Way>,
    queue: Buckets,
    /// The distance at which each node was visited last.
    visited: Vec<u32>,
    /// Distances of the seeds, by node.
    seeds: Vec<u32>,
}

impl Search {
    /// Takes the lengths of all links, m; infinite ones are down. Everything after works with these.
    pub fn load(&mut self, graph: &Graph, lengths_m: &[f64]) {
        self.lengths.clear();
        self.lengths.extend(lengths_m.iter().map(|&l| units(l)));
        self.ways.clear();
        let way = |arc: &Arc| Way { to: arc.to, link: arc.link, length: self.lengths[arc.link as usize] };
        self.ways.extend(graph.arcs.iter().map(way));
        self.seeds.resize(graph.nodes(), FAR);
        self.visited.resize(graph.nodes(), NONE);
        // A bucket no wider than the shortest link settles every node at its first visit. A wider one is right as
        // well but may visit nodes again; below 16 km (2^17 units) there would be too many buckets.
        let shortest = self.lengths.iter().copied().min().unwrap_or(FAR).min(FAR / 2);
        self.queue.shift = shortest.max(1).ilog2().max(17);
    }

    /// Builds `tree` from nothing. `seeds` are the nodes next to the destination with their distances, units.
    pub fn grow(&mut self, graph: &Graph, seeds: &[(u32, u32)], tree: &mut Tree) {
        tree.distance.fill(FAR);
        tree.hop.fill(STRAIGHT);
        self.visited.fill(NONE);
        tree.order.clear();
        self.queue.begin();
        for &(node, distance) in seeds {
            self.improve(tree, node, distance, STRAIGHT);
        }
        let Self { ways, queue, visited, .. } = self;
        let (distance, hop) = (tree.distance.as_mut_slice(), tree.hop.as_mut_slice());
        while let Some(node) = queue.take() {
            let here = distance[node as usize];
            if visited[node as usize] == here {
                continue;
            }
            visited[node as usize] = here;
            tree.rank[node as usize] = tree.order.len() as u32;
            tree.order.push(node);
            for way in &ways[graph.row(node)] {
                let through = here + way.length;
                if through < distance[way.to as usize] {
                    distance[way.to as usize] = through;
                    hop[way.to as usize] = Arc { to: node, link: way.link };
                    queue.put(way.to, through);
                }
            }
        }
        tree.settle_order();
    }

    /// Brings `tree` up to date after lengths or seeds changed; the links are the same. The distances are those that
    /// [`Search::grow`] finds; of ways of equal length it may choose another.
    pub fn repair(&mut self, graph: &Graph, seeds: &[(u32, u32)], tree: &mut Tree) {
        for &(node, distance) in seeds {
            self.seeds[node as usize] = distance;
        }
        self.walk_again(tree);
        self.visited.fill(NONE);
        self.queue.begin();
        for &(node, _) in seeds {
            let distance = std::mem::replace(&mut self.seeds[node as usize], FAR);
            if distance < tree.distance[node as usize] {
                self.improve(tree, node, distance, STRAIGHT);
            }
        }
        let mut ordered = self.find_short_cuts(graph, tree);
        ordered &= self.spread(graph, tree);
        if !ordered {
            tree.sort_by_distance();
        }
    }

    /// New distances along the old tree.
    fn walk_again(&self, tree: &mut Tree) {
        let (distance, hops) = (tree.distance.as_mut_slice(), tree.hop.as_slice());
        for &node in &tree.order {
            let hop = hops[node as usize];
            distance[node as usize] = match hop.to {
                NONE => self.seeds[node as usize],
                to => (distance[to as usize] + self.lengths[hop.link as usize]).min(FAR),
            };
        }
    }

    /// Looks at every link once: nearly all of them have nothing to offer. Tells whether the order holds.
    fn find_short_cuts(&mut self, graph: &Graph, tree: &mut Tree) -> bool {
        let mut ordered = true;
        for &Run { first, count } in &graph.runs {
            let (a, b) = graph.links[first];
            let ends = |node: u32| &tree.distance[node as usize..node as usize + count];
            // Three slices side by side: the compiler compares several links at a time.
            let sides = ends(a).iter().zip(ends(b)).zip(&self.lengths[first..first + count]);
            if sides.fold(false, |any, ((x, y), length)| any | (x.abs_diff(*y) > *length)) {
                ordered &= self.take_short_cuts(graph, tree, first..first + count);
            }
        }
        ordered
    }

    fn take_short_cuts(&mut self, graph: &Graph, tree: &mut Tree, links: Range<usize>) -> bool {
        let mut ordered = true;
        for link in links {
            let ((a, b), length) = (graph.links[link], self.lengths[link]);
            let d = |node: u32| tree.distance[node as usize];
            let (from, to) = if d(a) < d(b) { (a, b) } else { (b, a) };
            let through = d(from) + length;
            if through < d(to) {
                ordered &= tree.rank[from as usize] < tree.rank[to as usize];
                self.improve(tree, to, through, Arc { to: from, link: link as u32 });
            }
        }
        ordered
    }

    fn improve(&mut self, tree: &mut Tree, node: u32, distance: u32, hop: Arc) {
        // A seed that is too far away is ignored.
        if distance < FAR {
            tree.distance[node as usize] = distance;
            tree.hop[node as usize] = hop;
            self.queue.put(node, distance);
        }
    }

    /// Lets improvements spread, nearest first. Tells whether `tree`'s order still holds.
    fn spread(&mut self, graph: &Graph, tree: &mut Tree) -> bool {
        let mut ordered = true;
        while let Some(node) = self.queue.take() {
            let here = tree.distance[node as usize];
            if self.visited[node as usize] == here {
                continue;
            }
            self.visited[node as usize] = here;
            for at in graph.row(node) {
                let way = self.ways[at];
                let through = here + way.length;
                if through < tree.distance[way.to as usize] {
                    ordered &= tree.rank[node as usize] < tree.rank[way.to as usize];
                    self.improve(tree, way.to, through, Arc { to: node, link: way.link });
                }
            }
        }
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petgraph::algo::dijkstra;
    use petgraph::graph::UnGraph;
    use proptest::prelude::*;

    /// Distances to a destination behind `seeds`, by petgraph.
    fn oracle(nodes: u32, links: &[(u32, u32)], lengths: &[f64], seeds: &[(u32, f64)]) -> Vec<f64> {
        let mut graph = UnGraph::<(), f64>::default();
        let all: Vec<_> = (0..=nodes).map(|_| graph.add_node(())).collect();
        for (&(a, b), &l) in links.iter().zip(lengths).filter(|(_, l)| l.is_finite()) {
            graph.add_edge(all[a as usize], all[b as usize], l);
        }
        for &(node, l) in seeds {
            graph.add_edge(all[nodes as usize], all[node as usize], l);
        }
        let found = dijkstra(&graph, all[nodes as usize], None, |e| *e.weight());
        (0..nodes).map(|n| found.get(&all[n as usize]).copied().unwrap_or(f64::INFINITY)).collect()
    }

    fn assert_tree(tree: &Tree, expected: &[f64], lengths: &[f64], seeds: &[(u32, f64)]) {
        for (node, &theirs) in (0u32..).zip(expected) {
            let Some(ours) = tree.distance(node).map(|d| f64::from(d) * UNIT_M) else {
                assert_eq!(theirs, f64::INFINITY, "node {node} has a way");
                continue;
            };
            let path: Vec<u32> = tree.walk(node).collect();
            let slack = (path.len() + 40) as f64 * UNIT_M;
            assert!((ours - theirs).abs() < slack, "node {node}: {ours} against {theirs}");
            let links: f64 = path[..path.len() - 1].iter().map(|&n| lengths[tree.hop(n).link as usize]).sum();
            let end = path[path.len() - 1];
            let last = seeds.iter().find(|s| s.0 == end).unwrap().1;
            assert!(
                (links + last - ours).abs() < slack,
                "the walk of node {node} is as long as its distance"
            );
        }
    }

    fn length() -> impl Strategy<Value = f64> {
        prop_oneof![8 => 1.0f64..5e6, 1 => 1.0f64..1e3, 1 => Just(f64::INFINITY)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn grown_and_repaired_trees_are_those_of_an_independent_dijkstra(
            nodes in 2u32..40,
            ends in prop::collection::vec((0u32..40, 0u32..40), 1..120),
            rounds in prop::collection::vec((prop::collection::vec(length(), 120), prop::collection::vec((0u32..40, 0.0f64..4e6), 0..5)), 1..5),
        ) {
            let links: Vec<(u32, u32)> = ends.iter().map(|&(a, b)| (a % nodes, b % nodes)).filter(|(a, b)| a != b).collect();
            let graph = Graph::new(nodes, links.clone());
            let mut search = Search::default();
            let (mut repaired, mut grown) = (Tree::new(nodes as usize), Tree::new(nodes as usize));
            for (lengths, seeds) in &rounds {
                let lengths = &lengths[..links.len()];
                let mut seeds: Vec<(u32, f64)> = seeds.iter().map(|&(n, l)| (n % nodes, l)).collect();
                seeds.sort_by_key(|s| s.0);
                seeds.dedup_by_key(|s| s.0);
                let expected = oracle(nodes, &links, lengths, &seeds);
                search.load(&graph, lengths);
                let whole: Vec<(u32, u32)> = seeds.iter().map(|&(n, l)| (n, units(l))).collect();
                search.grow(&graph, &whole, &mut grown);
                assert_tree(&grown, &expected, lengths, &seeds);
                search.repair(&graph, &whole, &mut repaired);
                assert_tree(&repaired, &expected, lengths, &seeds);
            }
        }
    }
}
