//! The network that is asked for: the parameters of LogGOPS, and how its nodes are connected.
//!
//! Times inside are picoseconds, so that equal sums are equal and a byte on a fast network is not
//! nothing.

/// The largest time that is taken for a latency, an overhead or a gap: a second.
const LONGEST_NS: f64 = 1e9;

/// A network and the ranks on its nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct Network {
    /// L: from the moment at which the last byte leaves a node until it is at another one, in
    /// picoseconds.
    pub latency: u64,
    /// o: what a message takes of the processor, on either side.
    pub overhead: u64,
    /// g: the time between two messages of a rank, at least.
    pub gap: u64,
    /// G: the time of a byte on a link of a node.
    pub per_byte: f64,
    /// O: what a byte takes of the processor, on either side.
    pub overhead_per_byte: f64,
    /// S: messages above this size wait for their receiver.
    pub rendezvous: u64,
    /// How the nodes are connected.
    pub topology: Topology,
    /// Ranks that share a node and its link.
    pub ranks_per_node: u32,
}

/// How the nodes are connected. Every node has a link to the network and one from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topology {
    /// Nothing but these.
    Crossbar,
    /// Leaf switches with so many nodes each, whose links upwards are `taper` times slower than
    /// those of their nodes together. Above them nothing is in the way.
    FatTree {
        /// Nodes of a leaf switch.
        nodes: u32,
        /// How much slower the way upwards is.
        taper: u32,
    },
    /// A torus with these sides, or one as near to a cube as the nodes allow. Messages go along
    /// one axis after the other, the shorter way round.
    Torus(Option<[u32; 3]>),
}

impl Network {
    /// Reads `L,o,g,G` or `L,o,g,G,topology`, in nanoseconds and nanoseconds a byte.
    ///
    /// # Errors
    /// What would be right, in a sentence.
    pub fn parse(text: &str) -> Result<Network, String> {
        let words: Vec<&str> = text.split(',').collect();
        let (numbers, topology) = match &words[..] {
            [numbers @ .., topology] if numbers.len() == 4 => (numbers, topology.parse()?),
            numbers if numbers.len() == 4 => (numbers, Topology::Crossbar),
            _ => {
                return Err(format!(
                    "`{text}` is not a network: write L,o,g,G in nanoseconds, such as \
                     5300,2300,2000,3, and a topology after it if you like."
                ));
            }
        };
        let per_byte = time("G", numbers[3])?;
        if per_byte <= 0.0 {
            return Err("G is the time of a byte and has to be more than 0.".to_owned());
        }
        Ok(Network {
            latency: picoseconds(time("L", numbers[0])?),
            overhead: picoseconds(time("o", numbers[1])?),
            gap: picoseconds(time("g", numbers[2])?),
            per_byte: per_byte * 1000.0,
            overhead_per_byte: 0.0,
            rendezvous: 32768,
            topology,
            ranks_per_node: 1,
        })
    }

    /// The nodes that so many ranks need.
    #[must_use]
    pub fn nodes(&self, ranks: u32) -> u32 {
        ranks.div_ceil(self.ranks_per_node.max(1))
    }

    /// Whether so many ranks fit.
    ///
    /// # Errors
    /// Why not, and what would.
    pub fn check(&self, ranks: u32) -> Result<(), String> {
        let nodes = self.nodes(ranks);
        if let Topology::Torus(Some(sides)) = self.topology {
            let room: u64 = sides.iter().map(|side| u64::from(*side)).product();
            if room < u64::from(nodes) {
                let [x, y, z] = sides;
                return Err(format!(
                    "A torus of {x} x {y} x {z} has {room} nodes, and {ranks} ranks need {nodes}: \
                     give longer sides, or `torus` alone."
                ));
            }
        }
        Ok(())
    }

    /// Bytes a second of the link of a node.
    #[must_use]
    pub fn speed(&self) -> f64 {
        1e12 / self.per_byte
    }
}

impl std::str::FromStr for Topology {
    type Err = String;

    fn from_str(text: &str) -> Result<Topology, String> {
        let wrong = || {
            format!(
                "`{text}` is not a topology: write crossbar, fattree:NODES:TAPER (such as \
                 fattree:16:2), torus, or torus:8x8x4."
            )
        };
        let number = |word: &str| word.parse::<u32>().ok().filter(|n| (1..=1 << 20).contains(n));
        let words: Vec<&str> = text.split(':').collect();
        match words[..] {
            ["crossbar"] => Ok(Topology::Crossbar),
            ["torus"] => Ok(Topology::Torus(None)),
            ["torus", sides] => {
                let sides: Option<Vec<u32>> = sides.split('x').map(number).collect();
                let sides = sides.and_then(|sides| <[u32; 3]>::try_from(sides).ok());
                let few = |sides: &[u32; 3]| {
                    sides.iter().map(|side| u64::from(*side)).product::<u64>() <= 1 << 18
                };
                sides.filter(few).map(|sides| Topology::Torus(Some(sides))).ok_or_else(wrong)
            }
            ["fattree", nodes, taper] => match (number(nodes), number(taper)) {
                (Some(nodes), Some(taper)) => Ok(Topology::FatTree { nodes, taper }),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Topology::Crossbar => f.write_str("a crossbar"),
            Topology::FatTree { nodes, taper } => {
                write!(f, "a fat tree with {nodes} nodes a switch and a taper of {taper}")
            }
            Topology::Torus(None) => f.write_str("a torus"),
            Topology::Torus(Some([x, y, z])) => write!(f, "a torus of {x} x {y} x {z}"),
        }
    }
}

/// Picoseconds of so many nanoseconds.
pub(crate) fn picoseconds(ns: f64) -> u64 {
    (ns * 1000.0).round() as u64
}

/// Reads a time in nanoseconds.
///
/// # Errors
/// What would be right, in a sentence.
pub fn time(name: &str, text: &str) -> Result<f64, String> {
    let read = text.trim().parse::<f64>().ok();
    read.filter(|ns| (0.0..=LONGEST_NS).contains(ns)).ok_or_else(|| {
        format!("{name} is `{text}`: give nanoseconds, from 0 to a second (1000000000).")
    })
}

#[cfg(test)]
mod tests {
    use super::{Network, Topology};

    #[test]
    fn a_network_is_read_with_its_topology() {
        let one = Network::parse("5300,2300,2000,3").unwrap();
        assert_eq!((one.latency, one.overhead, one.gap), (5_300_000, 2_300_000, 2_000_000));
        assert_eq!((one.per_byte, one.topology), (3000.0, Topology::Crossbar));
        let of = |text: &str| Network::parse(&format!("1,1,1,0.04,{text}")).unwrap().topology;
        assert_eq!(of("fattree:16:2"), Topology::FatTree { nodes: 16, taper: 2 });
        assert_eq!(
            (of("torus"), of("torus:8x8x4")),
            (Topology::Torus(None), Topology::Torus(Some([8, 8, 4])),)
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for (text, told) in [
            ("", "is not a network"),
            ("1,2,3", "is not a network"),
            ("1,2,3,4,torus,5", "is not a network"),
            ("1,2,3,0", "more than 0"),
            ("1,2,3,-4", "G is `-4`"),
            ("NaN,2,3,4", "L is `NaN`"),
            ("1,inf,3,4", "o is `inf`"),
            ("1,2,1e12,4", "g is `1e12`"),
            ("1,2,3,4,ring", "`ring` is not a topology"),
            ("1,2,3,4,fattree:0:1", "is not a topology"),
            ("1,2,3,4,fattree:16", "is not a topology"),
            ("1,2,3,4,torus:8x8", "is not a topology"),
            ("1,2,3,4,torus:9999x9999x9999", "is not a topology"),
        ] {
            let why = Network::parse(text).expect_err(text);
            assert!(why.contains(told) && why.ends_with('.'), "{text}: {why}");
        }
        let torus = Network::parse("1,1,1,1,torus:2x2x2").unwrap();
        assert!(torus.check(8).is_ok());
        assert!(torus.check(9).expect_err("too many").contains("has 8 nodes, and 9 ranks need 9"));
    }
}
