//! Shortest-path trees over a graph whose links change length at every step.
//!
//! [`Search::grow`] builds a tree from nothing: Dijkstra with buckets of distance for a queue (Dial, CACM 12(11), 1969).
//! [`Search::repair`] brings a tree up to date: it walks the old tree with the new lengths, looks once at every link for
//! a short cut, and lets improvements spread. A satellite network's lengths all change in a second, its trees hardly do.

/// Stands for no node, no link.
pub const NONE: u32 = u32::MAX;

/// A path must be shorter by this much to replace another, m: rounding must not make routes flap.
const EPSILON_M: f64 = 1e-6;

/// A way out of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arc {
    /// The neighbour.
    pub to: u32,
    /// The link to it, an index into the list of lengths.
    pub link: u32,
}

/// Nodes and undirected links in compressed rows.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    offsets: Vec<u32>,
    arcs: Vec<Arc>,
    links: Vec<(u32, u32)>,
}

impl Graph {
    /// A graph of nodes 0 to `nodes` - 1; a link's number is its place in `links`.
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
        Self { offsets, arcs, links }
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
    fn row(&self, node: u32) -> std::ops::Range<usize> {
        self.offsets[node as usize] as usize..self.offsets[node as usize + 1] as usize
    }
}

/// What a tree knows of one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Branch {
    /// Distance to the destination, m; infinity where there is no way.
    pub distance_m: f64,
    /// Next hop; [`NONE`] means straight to the destination (or nowhere, if the distance is infinite).
    pub hop: Arc,
}

impl Branch {
    const NOWHERE: Self = Self { distance_m: f64::INFINITY, hop: Arc { to: NONE, link: NONE } };
}

/// Shortest ways from all nodes to one destination.
///
/// The destination itself is outside of the graph: seeds are the nodes that reach it directly.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    branches: Vec<Branch>,
    /// All nodes, each after its next hop.
    order: Vec<u32>,
    /// Compares like places in `order`.
    rank: Vec<u32>,
}

impl Tree {
    /// A tree of no ways over `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        let order: Vec<u32> = (0..nodes as u32).collect();
        Self { branches: vec![Branch::NOWHERE; nodes], rank: order.clone(), order }
    }

    /// Distance and next hop of a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn branch(&self, node: u32) -> Branch {
        self.branches[node as usize]
    }

    /// The nodes from `node` to the last one before the destination.
    pub fn walk(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let next = |&at: &u32| Some(self.branch(at).hop.to).filter(|&to| to != NONE);
        std::iter::successors(Some(node), next)
    }

    /// A node's last visit comes after the last visit of its next hop: that is the order. Nodes never reached go last.
    fn order_by_log(&mut self, log: &[u32]) {
        self.order.clear();
        let rank = &mut self.rank;
        self.order.extend((0u32..).zip(log).filter(|&(i, &node)| rank[node as usize] == i).map(|(_, &n)| n));
        if self.order.len() == self.branches.len() {
            return;
        }
        for (node, branch) in (0u32..).zip(&self.branches) {
            if branch.distance_m == f64::INFINITY {
                rank[node as usize] = NONE;
                self.order.push(node);
            }
        }
    }

    /// Insertion sort: the order is nearly right, so this takes about one look at each node.
    fn sort_by_distance(&mut self) {
        let Self { branches, order, rank } = self;
        for i in 1..order.len() {
            let node = order[i];
            let mut at = i;
            while at > 0 && branches[order[at - 1] as usize].distance_m > branches[node as usize].distance_m {
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
#[derive(Clone, Debug, Default)]
struct Buckets {
    per_m: f64,
    heads: Vec<u32>,
    pool: Vec<(u32, u32)>,
    waiting: usize,
    lowest: usize,
    /// In which bucket a node's valid entry lies.
    queued_at: Vec<u32>,
}

impl Buckets {
    #[inline]
    fn push(&mut self, node: u32, distance_m: f64) {
        let bucket = (distance_m * self.per_m) as usize;
        if self.queued_at[node as usize] == bucket as u32 {
            return;
        }
        self.queued_at[node as usize] = bucket as u32;
        if bucket >= self.heads.len() {
            self.heads.resize(bucket + 64, NONE);
        }
        self.lowest = self.lowest.min(bucket);
        self.pool.push((node, self.heads[bucket]));
        self.heads[bucket] = (self.pool.len() - 1) as u32;
        self.waiting += 1;
    }

    /// The next node whose entry is valid.
    #[inline]
    fn pop(&mut self) -> Option<u32> {
        while self.waiting > 0 {
            let head = self.heads[self.lowest];
            if head == NONE {
                self.lowest += 1;
                continue;
            }
            let (node, next) = self.pool[head as usize];
            self.heads[self.lowest] = next;
            self.waiting -= 1;
            if self.queued_at[node as usize] == self.lowest as u32 {
                self.queued_at[node as usize] = NONE;
                return Some(node);
            }
        }
        self.pool.clear();
        self.lowest = usize::MAX;
        None
    }
}

/// Working memory of the searches; one serves any number of trees over one graph.
#[derive(Clone, Debug, Default)]
pub struct Search {
    lengths_m: Vec<f64>,
    /// Length of each arc of the graph, so that a node's arcs are read in one go.
    arc_m: Vec<f64>,
    queue: Buckets,
    seed_m: Vec<f64>,
    log: Vec<u32>,
}

impl Search {
    /// Takes the lengths of all links, m; infinite ones are down. Everything after works with these.
    pub fn load(&mut self, graph: &Graph, lengths_m: &[f64]) {
        self.lengths_m.clear();
        self.lengths_m.extend_from_slice(lengths_m);
        self.arc_m.clear();
        self.arc_m.extend(graph.arcs.iter().map(|arc| lengths_m[arc.link as usize]));
        if self.seed_m.len() != graph.nodes() {
            self.queue =
                Buckets { queued_at: vec![NONE; graph.nodes()], lowest: usize::MAX, ..Buckets::default() };
            self.seed_m = vec![f64::INFINITY; graph.nodes()];
        }
        // A bucket no wider than the shortest link settles every node at its first visit; a wider one is right as
        // well but may visit nodes again, and there must not be too many buckets.
        let (mut shortest, mut sum, mut up) = (f64::INFINITY, 0.0, 0.0);
        for &length in lengths_m.iter().filter(|l| l.is_finite()) {
            shortest = length.min(shortest);
            sum += length;
            up += 1.0;
        }
        let mean = if up > 0.0 { sum / up } else { 1e6 };
        self.queue.per_m = 1.0 / shortest.clamp(mean / 8.0 + 1.0, mean + 1e6);
    }

    /// Builds `tree` from nothing. `seeds` are the nodes next to the destination with their distances, m.
    pub fn grow(&mut self, graph: &Graph, seeds: &[(u32, f64)], tree: &mut Tree) {
        tree.branches.fill(Branch::NOWHERE);
        for &(node, distance) in seeds {
            self.improve(tree, node, distance, Branch::NOWHERE.hop);
        }
        let Self { arc_m, queue, log, .. } = self;
        log.clear();
        while let Some(node) = queue.pop() {
            tree.rank[node as usize] = log.len() as u32;
            log.push(node);
            let here = tree.branches[node as usize].distance_m;
            let row = graph.row(node);
            for (arc, length) in graph.arcs[row.clone()].iter().zip(&arc_m[row]) {
                let through = here + length;
                let there = &mut tree.branches[arc.to as usize];
                if through + EPSILON_M < there.distance_m {
                    *there = Branch { distance_m: through, hop: Arc { to: node, link: arc.link } };
                    queue.push(arc.to, through);
                }
            }
        }
        tree.order_by_log(log);
    }

    /// Brings `tree` up to date after lengths or seeds changed; the links are the same. The result is what
    /// [`Search::grow`] finds, to within rounding.
    pub fn repair(&mut self, graph: &Graph, seeds: &[(u32, f64)], tree: &mut Tree) {
        for &(node, distance) in seeds {
            self.seed_m[node as usize] = distance;
        }
        self.walk_again(tree);
        for &(node, distance) in seeds {
            if distance + EPSILON_M < tree.branches[node as usize].distance_m {
                self.improve(tree, node, distance, Branch::NOWHERE.hop);
            }
            self.seed_m[node as usize] = f64::INFINITY;
        }
        let mut ordered = self.find_short_cuts(graph, tree);
        ordered &= self.spread(graph, tree);
        if !ordered {
            tree.sort_by_distance();
        }
    }

    /// New distances along the old tree.
    fn walk_again(&self, tree: &mut Tree) {
        let branches = tree.branches.as_mut_slice();
        for &node in &tree.order {
            let hop = branches[node as usize].hop;
            let distance_m = match hop.to {
                NONE => self.seed_m[node as usize],
                to => branches[to as usize].distance_m + self.lengths_m[hop.link as usize],
            };
            branches[node as usize].distance_m = distance_m;
        }
    }

    /// Looks at every link once, in blocks: nearly all of them have nothing to offer. Tells whether the order holds.
    fn find_short_cuts(&mut self, graph: &Graph, tree: &mut Tree) -> bool {
        const BLOCK: usize = 16;
        let mut ordered = true;
        for start in (0..graph.links.len()).step_by(BLOCK) {
            let block = start..(start + BLOCK).min(graph.links.len());
            let d = |node: u32| tree.branches[node as usize].distance_m;
            let pairs = graph.links[block.clone()].iter().zip(&self.lengths_m[block.clone()]);
            // Infinite on both sides gives NaN, which is not greater: no way becomes no shorter.
            if !pairs.fold(false, |any, (&(a, b), &length)| any | ((d(a) - d(b)).abs() > length + EPSILON_M))
            {
                continue;
            }
            for link in block {
                let ((a, b), length) = (graph.links[link], self.lengths_m[link]);
                let d = |node: u32| tree.branches[node as usize].distance_m;
                let (from, to) = if d(a) < d(b) { (a, b) } else { (b, a) };
                let through = d(from) + length;
                if through + EPSILON_M < d(to) {
                    ordered &= tree.rank[from as usize] < tree.rank[to as usize];
                    self.improve(tree, to, through, Arc { to: from, link: link as u32 });
                }
            }
        }
        ordered
    }

    fn improve(&mut self, tree: &mut Tree, node: u32, distance_m: f64, hop: Arc) {
        tree.branches[node as usize] = Branch { distance_m, hop };
        self.queue.push(node, distance_m);
    }

    /// Lets improvements spread, nearest first. Tells whether `tree`'s order still holds.
    fn spread(&mut self, graph: &Graph, tree: &mut Tree) -> bool {
        let mut ordered = true;
        while let Some(node) = self.queue.pop() {
            let here = tree.branches[node as usize].distance_m;
            for at in graph.row(node) {
                let (arc, through) = (graph.arcs[at], here + self.arc_m[at]);
                if through + EPSILON_M < tree.branches[arc.to as usize].distance_m {
                    ordered &= tree.rank[node as usize] < tree.rank[arc.to as usize];
                    self.improve(tree, arc.to, through, Arc { to: node, link: arc.link });
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
        for (node, (ours, &theirs)) in tree.branches.iter().map(|b| b.distance_m).zip(expected).enumerate() {
            assert!(ours == theirs || (ours - theirs).abs() < 1e-3, "node {node}: {ours} against {theirs}");
            if ours.is_finite() {
                let path: Vec<u32> = tree.walk(node as u32).collect();
                let hops: f64 =
                    path[..path.len() - 1].iter().map(|&n| lengths[tree.branch(n).hop.link as usize]).sum();
                let end = path[path.len() - 1];
                let last = seeds.iter().filter(|s| s.0 == end).map(|s| s.1).fold(f64::INFINITY, f64::min);
                assert!(
                    (hops + last - ours).abs() < 1e-3,
                    "the walk of node {node} is as long as its distance"
                );
            }
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
                search.grow(&graph, &seeds, &mut grown);
                assert_tree(&grown, &expected, lengths, &seeds);
                search.repair(&graph, &seeds, &mut repaired);
                assert_tree(&repaired, &expected, lengths, &seeds);
            }
        }
    }
}
