//! Sweeps over tiles that are rewritten, in an arena with room for three of four, above a disk.

mod support;

use support::{Bench, config};
use unspool_core::{Command, Event, TierId, Version};

const TILES: i64 = 16;
const ARENA: TierId = TierId(0);

/// Reads each tile and saves it as its next version; the one before is discarded. All transfers end
/// between the calls. Gives the tiers that served and those that were granted.
fn rewrite(bench: &mut Bench, lap: i64) -> Vec<(TierId, TierId)> {
    let turn = |version: i64| {
        bench.finish_all();
        let served = bench.restore(version).expect("a tile that was saved");
        bench.expect_last(version + TILES);
        bench.finish_all();
        let Command::Grant { place, .. } = bench.save(version + TILES, 8) else {
            panic!("version {version} is refused");
        };
        bench.step(Event::Discard { version: Version(version) });
        (served, place.tier)
    };
    (lap * TILES..(lap + 1) * TILES).map(turn).collect()
}

#[test]
fn while_links_keep_up_all_is_read_and_written_in_the_arena() {
    let mut bench = Bench::new(config(8, TILES as u64 * 3 / 4, 0, 1000));
    bench.save_all(0..TILES, 8);
    for tile in 0..TILES {
        bench.expect_last(tile);
    }
    rewrite(&mut bench, 0);
    for lap in 1..4 {
        let tiers = rewrite(&mut bench, lap);
        assert_eq!(tiers, [(ARENA, ARENA)].repeat(TILES as usize), "lap {lap}");
    }
}
