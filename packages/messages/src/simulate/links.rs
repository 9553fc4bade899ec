//! The links of a network, and those that a message takes from one node to another.

use crate::simulate::network::{Network, Topology};

/// The links for some ranks, by number.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    nodes: u32,
    shape: Shape,
    /// Bytes a picosecond.
    pub(crate) capacities: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Crossbar,
    /// Nodes of a switch, and how many switches there are.
    Tree(u32, u32),
    Torus([u32; 3]),
}

impl Links {
    /// The links of a network for so many ranks.
    pub(crate) fn of(network: &Network, ranks: u32) -> Links {
        let needed = network.nodes(ranks).max(1);
        let shape = match network.topology {
            Topology::Crossbar => Shape::Crossbar,
            Topology::FatTree { nodes, .. } => Shape::Tree(nodes, needed.div_ceil(nodes)),
            Topology::Torus(sides) => Shape::Torus(sides.unwrap_or_else(|| cube(needed))),
        };
        let nodes = match shape {
            Shape::Torus(sides) => sides.iter().product(),
            _ => needed,
        };
        let speed = 1.0 / network.per_byte;
        let mut capacities = vec![speed; 2 * nodes as usize];
        match (shape, network.topology) {
            (Shape::Tree(below, switches), Topology::FatTree { taper, .. }) => {
                let up = speed * f64::from(below) / f64::from(taper);
                capacities.extend(vec![up; 2 * switches as usize]);
            }
            (Shape::Torus(_), _) => capacities.extend(vec![speed; 6 * nodes as usize]),
            _ => {}
        }
        Links { nodes, shape, capacities }
    }

    /// Puts the links from one node to another into `path`; none within a node.
    pub(crate) fn route(&self, from: u32, to: u32, path: &mut Vec<u32>) {
        path.clear();
        if from == to {
            return;
        }
        path.push(from);
        match self.shape {
            Shape::Crossbar => {}
            Shape::Tree(below, switches) => {
                let (leaf, other) = (from / below, to / below);
                if leaf != other {
                    path.extend([2 * self.nodes + leaf, 2 * self.nodes + switches + other]);
                }
            }
            Shape::Torus(sides) => self.along(sides, from, to, path),
        }
        path.push(self.nodes + to);
    }

    fn along(&self, sides: [u32; 3], from: u32, to: u32, path: &mut Vec<u32>) {
        let mut at = place(sides, from);
        let target = place(sides, to);
        for axis in 0..3 {
            let side = sides[axis];
            let ahead = (target[axis] + side - at[axis]) % side;
            let forwards = ahead * 2 <= side;
            while at[axis] != target[axis] {
                let node = at[0] + sides[0] * (at[1] + sides[1] * at[2]);
                let link = axis as u32 * 2 + u32::from(!forwards);
                path.push(2 * self.nodes + node * 6 + link);
                at[axis] = (at[axis] + if forwards { 1 } else { side - 1 }) % side;
            }
        }
    }

    /// What people call a link.
    pub(crate) fn name(&self, link: u32) -> String {
        if link < self.nodes {
            return format!("from node {link}");
        }
        if link < 2 * self.nodes {
            return format!("to node {}", link - self.nodes);
        }
        let rest = link - 2 * self.nodes;
        match self.shape {
            Shape::Tree(_, switches) if rest < switches => format!("up from switch {rest}"),
            Shape::Tree(_, switches) => format!("down to switch {}", rest - switches),
            Shape::Torus(sides) => {
                let [x, y, z] = place(sides, rest / 6);
                let way = ["+x", "-x", "+y", "-y", "+z", "-z"][(rest % 6) as usize];
                format!("{way} from node ({x}, {y}, {z})")
            }
            Shape::Crossbar => format!("link {link}"),
        }
    }
}

fn place(sides: [u32; 3], node: u32) -> [u32; 3] {
    [node % sides[0], node / sides[0] % sides[1], node / sides[0] / sides[1]]
}

/// Sides whose product is this number, as equal as they can be.
fn cube(nodes: u32) -> [u32; 3] {
    let largest = |number: u32, root: f64| {
        let most = f64::from(number).powf(root).round() as u32;
        (1..=most.max(1)).rev().find(|side| number.is_multiple_of(*side)).unwrap_or(1)
    };
    let first = largest(nodes, 1.0 / 3.0);
    let second = largest(nodes / first, 0.5);
    let mut sides = [first, second, nodes / first / second];
    sides.sort_unstable();
    sides
}

#[cfg(test)]
mod tests {
    use super::{Links, cube};
    use crate::simulate::network::Network;

    fn route(text: &str, ranks: u32, from: u32, to: u32) -> Vec<String> {
        let links = Links::of(&Network::parse(text).unwrap(), ranks);
        let mut path = vec![7];
        links.route(from, to, &mut path);
        assert!(path.iter().all(|link| (*link as usize) < links.capacities.len()));
        path.iter().map(|link| links.name(*link)).collect()
    }

    #[test]
    fn messages_take_the_links_between_their_nodes() {
        assert_eq!(route("1,1,1,1", 4, 1, 3), ["from node 1", "to node 3"]);
        assert!(route("1,1,1,1", 4, 2, 2).is_empty());
        let tree = "1,1,1,1,fattree:4:2";
        assert_eq!(route(tree, 10, 0, 3), ["from node 0", "to node 3"]);
        let over = ["from node 0", "up from switch 0", "down to switch 2", "to node 9"];
        assert_eq!(route(tree, 10, 0, 9), over);
    }

    #[test]
    fn a_torus_is_crossed_the_shorter_way_round() {
        let torus = "1,1,1,1,torus:4x4x4";
        let near = ["from node 0", "-x from node (0, 0, 0)", "to node 3"];
        assert_eq!(route(torus, 64, 0, 3), near);
        let far = [
            "from node 0",
            "+x from node (0, 0, 0)",
            "+x from node (1, 0, 0)",
            "-z from node (2, 0, 0)",
            "to node 50",
        ];
        assert_eq!(route(torus, 64, 0, 50), far);
    }

    #[test]
    fn a_tapered_tree_is_slower_upwards_and_sides_are_near_a_cube() {
        let links = Links::of(&Network::parse("1,1,1,1,fattree:8:4").unwrap(), 16);
        assert_eq!(links.capacities[..32], [1e-3; 32]);
        assert_eq!(links.capacities[32..], [2e-3; 4]);
        assert_eq!((cube(4096), cube(256), cube(12)), ([16, 16, 16], [4, 8, 8], [2, 2, 3]));
        assert_eq!(cube(7), [1, 1, 7]);
    }
}
