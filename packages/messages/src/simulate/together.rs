//! What a call of several ranks costs from when the last of them is there, by the usual algorithms
//! in LogGP: trees of `log2` rounds for few bytes, and parts that go round for many.
//!
//! None of its ranks leaves before the last one has come. Its messages do not share links with
//! others, and are not coded.

use crate::calls::Gives;
use crate::simulate::network::Network;
use crate::simulate::program::Together;

/// Picoseconds of a call of so many ranks.
pub(crate) fn cost(call: &Together, network: &Network, ranks: u32) -> u64 {
    if ranks < 2 {
        return 0;
    }
    let rounds = f64::from(32 - (ranks - 1).leading_zeros());
    let others = f64::from(ranks - 1);
    let hop = (network.latency + 2 * network.overhead) as f64;
    let bytes = call.bytes as f64;
    let byte = network.per_byte;
    // What the root gives to all, or what all give to each, was for fewer ranks when recorded.
    let grown = bytes * f64::from(ranks) / f64::from(call.ranks.max(1));
    // Every byte to everybody, or from everybody: whole in each round, or in parts twice round.
    let whole = (rounds * (hop + bytes * byte))
        .min(2.0 * rounds * hop + 2.0 * bytes * byte * others / f64::from(ranks));
    let picoseconds = match call.gives {
        Gives::Nothing => rounds * hop,
        Gives::RootOnce => whole,
        Gives::Once if call.reduces => whole,
        // Gathers: what all others have given arrives at one rank, or at each.
        Gives::Once => rounds * hop + others * bytes * byte,
        Gives::RootEach => rounds * hop + grown * byte,
        Gives::Each if call.reduces => rounds * hop + grown * byte,
        // To each rank a message of its own.
        Gives::Each => hop + others * (network.gap.max(network.overhead) as f64) + bytes * byte,
        Gives::ToNeighbours | Gives::EachNeighbour => hop + bytes * byte,
    };
    picoseconds as u64
}

#[cfg(test)]
mod tests {
    use super::cost;
    use crate::calls::Gives;
    use crate::simulate::network::Network;
    use crate::simulate::program::Together;

    #[test]
    fn calls_of_all_ranks_cost_what_their_rounds_do() {
        let network = Network::parse("100,10,5,2").unwrap();
        let of = |gives, reduces, bytes, ranks| {
            let call = Together { ranks: 4, bytes, gives, reduces };
            cost(&call, &network, ranks) / 1000
        };
        // A barrier of 8 ranks has 3 rounds of 100 + 2 x 10.
        assert_eq!(of(Gives::Nothing, false, 0, 8), 360);
        assert_eq!(of(Gives::Nothing, false, 0, 9), 480);
        // 8 bytes are added up in 3 rounds of 120 + 16; a megabyte goes round twice in parts.
        assert_eq!(of(Gives::Once, true, 8, 8), 408);
        assert_eq!(of(Gives::Once, true, 1_000_000, 8), 720 + 3_500_000);
        // Gathered: 7 x 100 bytes arrive.
        assert_eq!(of(Gives::Once, false, 100, 8), 360 + 1400);
        // 400 bytes for 4 ranks are 800 for 8.
        assert_eq!(of(Gives::RootEach, false, 400, 8), 360 + 1600);
        assert_eq!(of(Gives::Each, false, 700, 8), 120 + 70 + 1400);
        assert_eq!(of(Gives::Once, true, 8, 1), 0);
    }
}
