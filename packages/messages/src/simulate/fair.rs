//! Max-min fair shares of links: no flow can get more without one that has no more than it getting
//! less.
//!
//! The link whose share for each of its flows is the smallest is full first: its flows have what
//! they get, and the other links share what is left among the rest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Room to work in, for links with these capacities.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    left: Vec<f64>,
    open: Vec<u32>,
    /// Links by their share. Shares are positive, so their bits are in their order.
    next: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Sharing {
    pub(crate) fn new(links: usize) -> Sharing {
        Sharing { left: vec![0.0; links], open: vec![0; links], next: BinaryHeap::new() }
    }

    /// Shares `links` among the flows `on` them, which use no other links. Rates of these flows
    /// are negative before, and what they get after. Returns how much there was to look at.
    pub(crate) fn share<'a>(
        &mut self,
        capacities: &[f64],
        links: &[u32],
        on: &[Vec<u32>],
        path: impl Fn(u32) -> &'a [u32],
        rates: &mut [f64],
    ) -> u64 {
        let mut work = 0;
        for link in links {
            let at = *link as usize;
            (self.left[at], self.open[at]) = (capacities[at], on[at].len() as u32);
            self.push(*link);
        }
        while let Some(Reverse((bits, link))) = self.next.pop() {
            let at = link as usize;
            work += 1;
            if self.open[at] == 0 {
                continue;
            }
            let share = self.part(link);
            // Its share has grown since: flows that it shares with other links got less there.
            if share.to_bits() > bits {
                self.push(link);
                continue;
            }
            for flow in &on[at] {
                work += 1;
                if rates[*flow as usize] >= 0.0 {
                    continue;
                }
                rates[*flow as usize] = share;
                for used in path(*flow) {
                    work += 1;
                    self.left[*used as usize] -= share;
                    self.open[*used as usize] -= 1;
                }
            }
        }
        work
    }

    fn part(&self, link: u32) -> f64 {
        let at = link as usize;
        // What rounding has left below nothing is nothing.
        (self.left[at] / f64::from(self.open[at])).max(f64::MIN_POSITIVE)
    }

    fn push(&mut self, link: u32) {
        if self.open[link as usize] > 0 {
            self.next.push(Reverse((self.part(link).to_bits(), link)));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Sharing;

    fn rates(capacities: &[f64], flows: &[Vec<u32>]) -> Vec<f64> {
        let mut on = vec![Vec::new(); capacities.len()];
        for (flow, path) in flows.iter().enumerate() {
            path.iter().for_each(|link| on[*link as usize].push(flow as u32));
        }
        let links: Vec<u32> = (0..capacities.len() as u32).collect();
        let mut rates = vec![-1.0; flows.len()];
        let mut sharing = Sharing::new(capacities.len());
        sharing.share(capacities, &links, &on, |flow| &flows[flow as usize], &mut rates);
        rates
    }

    /// Links with capacities, and flows over some of them.
    fn networks() -> impl Strategy<Value = (Vec<f64>, Vec<Vec<u32>>)> {
        let links = proptest::collection::vec(1.0..100.0, 2..9);
        links.prop_flat_map(|links| {
            let count = links.len() as u32;
            let path = proptest::collection::btree_set(0..count, 1..=count as usize);
            let path = path.prop_map(|path| path.into_iter().collect::<Vec<u32>>());
            (Just(links), proptest::collection::vec(path, 1..20))
        })
    }

    proptest! {
        #[test]
        fn no_link_has_more_than_it_carries_and_each_flow_a_full_one(
            (links, flows) in networks(),
        ) {
            let rates = rates(&links, &flows);
            let on = |link: u32| {
                let those = flows.iter().zip(&rates).filter(move |(path, _)| path.contains(&link));
                those.map(|(_, rate)| *rate)
            };
            for (link, capacity) in links.iter().enumerate() {
                prop_assert!(on(link as u32).sum::<f64>() <= capacity * (1.0 + 1e-9));
            }
            for (path, rate) in flows.iter().zip(&rates) {
                let bottleneck = path.iter().any(|link| {
                    let full = on(*link).sum::<f64>() >= links[*link as usize] * (1.0 - 1e-9);
                    full && on(*link).all(|other| other <= rate * (1.0 + 1e-9))
                });
                prop_assert!(bottleneck, "{:?} at {} of {:?}", path, rate, rates);
            }
        }

        #[test]
        fn a_faster_link_does_not_lower_the_smallest_rate(
            (links, flows) in networks(), which: prop::sample::Index, more in 1.0..10.0,
        ) {
            let least = |links: &[f64]| rates(links, &flows).into_iter().fold(f64::MAX, f64::min);
            let before = least(&links);
            let mut faster = links.clone();
            faster[which.index(links.len())] *= more;
            prop_assert!(least(&faster) >= before * (1.0 - 1e-9));
        }
    }

    #[test]
    fn what_one_flow_cannot_use_is_for_the_others() {
        // Two flows on a link of 10, one of which is held to 2 elsewhere.
        assert_eq!(rates(&[10.0, 2.0], &[vec![0, 1], vec![0]]), [2.0, 8.0]);
        assert_eq!(rates(&[9.0], &[vec![0], vec![0], vec![0]]), [3.0, 3.0, 3.0]);
    }
}
