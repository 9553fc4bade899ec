//! A graph of names, and its circles.

use std::collections::{BTreeMap, BTreeSet};

/// For each name those that it points to.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The sets of names that reach each other, each ordered, by the first name of each.
pub fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|name| (name, reach(graph, name))).collect();
    let mut found = BTreeSet::new();
    for (name, beyond) in &reached {
        let circle: Vec<String> = beyond
            .iter()
            .filter(|other| reached.get(**other).is_some_and(|back| back.contains(name)))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn reach<'a>(graph: &'a Graph, name: &'a String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut next = vec![name];
    while let Some(name) = next.pop() {
        next.extend(graph.get(name).into_iter().flatten().filter(|other| found.insert(*other)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Graph, circles};

    #[test]
    fn names_that_reach_each_other_are_one_circle() {
        let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "e"), ("e", "a")];
        let mut graph = Graph::new();
        for (from, to) in edges {
            graph.entry(from.to_owned()).or_default().insert(to.to_owned());
        }
        assert_eq!(circles(&graph), [["a", "b", "c"]]);
    }
}
