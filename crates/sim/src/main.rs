fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let mut bad = 0;
    let mut events = 0;
    for seed in args[0]..args[1] {
        match unspool_sim::run_seed(seed) {
            Ok(f) => events += f.events,
            Err(e) => { bad += 1; if bad <= 5 { println!("{e}\n"); } else { println!("{} {}", seed, e.violation); } }
        }
    }
    println!("bad {bad} events {events}");
}
