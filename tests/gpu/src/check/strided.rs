//! Gathers and scatters of random layouts against a walk on the host, and their speeds.

use unspool_cuda::kernels::pattern;
use unspool_cuda::{Context, DeviceMemory, Event, Stream, StridedCopies, StridedLayout, copy};

use crate::util::{LONG, MIB, Random, rate, wait_for_releases};

/// Space for every array and its dense copy.
const ROOM: u64 = 64 * MIB;

/// Views of an array of four dimensions, and arrays that are large enough for tiles, with edges of
/// all kinds: shape, strides, item size.
const TRANSPOSED: [(&[u64], &[i64], u64); 10] = [
    (&[8, 7, 6, 5], &[8, 64, 448, 2688], 8),
    (&[7, 5, 8, 6], &[64, 2688, 8, 448], 8),
    (&[5, 3, 1, 7, 8], &[2688, -896, 0, 64, 8], 8),
    (&[1300, 1333], &[4, 5200], 4),
    (&[1024, 512], &[8, 8192], 8),
    (&[257, 300, 3], &[2, 257 * 2 * 3, 257 * 2], 2),
    (&[170, 140, 161], &[4, 680, 680 * 140], 4),
    (&[1520, 1300], &[1, 1600], 1),
    (&[333, 300], &[16, -16 * 333], 16),
    (&[600, 333], &[12, 12 * 600], 12),
];

struct Bench {
    stream: Stream,
    copies: StridedCopies,
    array: DeviceMemory,
    dense: DeviceMemory,
}

pub fn check(context: &Context) {
    let bench = Bench::new(context, ROOM);
    let mut random = Random::new(11);
    let (mut items, mut scattered) = (0, 0);
    for round in 0..400 {
        let (layout, first) = layout(&mut random, round);
        items += layout.shape.iter().product::<u64>();
        scattered += u64::from(bench.agrees(&layout, first, round));
    }
    assert!(scattered > 100, "{scattered}");
    for (round, (shape, strides, itemsize)) in (400..).step_by(10).zip(TRANSPOSED) {
        let (shape, strides) = (shape.to_vec(), strides.to_vec());
        let layout = StridedLayout { shape, strides, itemsize };
        let (low, _) = layout.extent(1 << 50).unwrap();
        assert!(bench.agrees(&layout, (1 << 50) + 16 - low, round), "{layout:?}");
    }
    println!("400 random layouts gathered, {scattered} scattered, {items} items: right");
    for apart in [1 << 10, 1 << 17, 1 << 24] {
        bench.copies_many(&mut random, apart);
    }
    drop(bench);
    wait_for_releases();
}

/// A random layout that fits, and the position of its first item.
fn layout(random: &mut Random, round: u64) -> (StridedLayout, u64) {
    let itemsize = [1, 2, 4, 4, 8, 8, 16, 12, 3][random.below(9) as usize];
    let most = if round.is_multiple_of(10) { 3_000_000 } else { 30_000 };
    loop {
        let mut outer = itemsize as i64;
        let mut dims = Vec::new();
        for _ in 0..random.below(6) {
            let size = random.below(if round.is_multiple_of(10) { 300 } else { 40 });
            let (step, spare) = (1 + random.below(3) as i64, random.below(9) as i64);
            let kind = random.below(10);
            let stride = match kind {
                0 => 0,
                1 => random.below(100) as i64 - 50,
                2..5 => outer * step,
                _ => outer,
            };
            outer *= (size.max(1) as i64 + if kind > 6 { spare } else { 0 }) * step;
            dims.push((size, if random.below(4) == 0 { -stride } else { stride }));
        }
        match random.below(3) {
            0 => dims.reverse(),
            1 => {
                let half = dims.len() / 2;
                dims.rotate_left(half);
            }
            _ => {}
        }
        let (shape, strides) = dims.into_iter().unzip();
        let layout = StridedLayout { shape, strides, itemsize };
        let skip = random.below(64);
        let Ok((low, end)) = layout.extent(1 << 50) else { continue };
        let few = layout.bytes().is_ok_and(|bytes| bytes <= most * itemsize);
        if few && end - low + skip <= ROOM {
            return (layout, skip + (1 << 50) - low);
        }
    }
}

impl Bench {
    fn new(context: &Context, room: u64) -> Bench {
        Bench {
            stream: Stream::new(context).unwrap(),
            copies: StridedCopies::new(context, Vec::new()),
            array: DeviceMemory::new(context, room).unwrap(),
            dense: DeviceMemory::new(context, room).unwrap(),
        }
    }

    /// Gathers and, where that is allowed, scatters; returns whether it was allowed.
    fn agrees(&self, layout: &StridedLayout, first: u64, round: u64) -> bool {
        let mut host = vec![0; ROOM as usize / if round.is_multiple_of(10) { 1 } else { 16 }];
        let (low, end) = layout.extent(first).unwrap();
        host.resize((end as usize).max(1 << 16), 0);
        pattern::fill(&mut host, round, 0);
        let part = self.array.span().slice(0, host.len() as u64).unwrap();
        copy::host_to_device(&self.stream, &part, &host, LONG).unwrap();
        let expected = walk(layout, first, &host);
        let dense = self.dense.span().slice(round % 16, expected.len() as u64).unwrap();
        let address = self.array.span().address() + first;
        // SAFETY: the extent of the layout is inside the array.
        unsafe { self.copies.gather(&self.stream, &dense, address, layout) }.unwrap();
        let mut found = vec![0; expected.len()];
        copy::device_to_host(&self.stream, &mut found, &dense, LONG).unwrap();
        assert!(found == expected, "gathered {layout:?} from {first}");
        copy::fill(&self.stream, &part, 0xEE).unwrap();
        // SAFETY: as above.
        let scattered = unsafe { self.copies.scatter(&self.stream, address, layout, &dense) };
        if layout.may_overlap().unwrap() {
            assert!(scattered.is_err());
            return false;
        }
        scattered.unwrap();
        copy::device_to_host(&self.stream, &mut host, &part, LONG).unwrap();
        assert!(walk(layout, first, &host) == expected, "scattered {layout:?} to {first}");
        let touched = host.iter().enumerate().filter(|pair| *pair.1 != 0xEE);
        let inside = low as usize..end as usize;
        assert!(touched.map(|pair| pair.0).all(|index| inside.contains(&index)));
        true
    }

    /// Copies bytes of all alignments and many lengths, at most `apart`, by few launches, and
    /// compares all.
    fn copies_many(&self, random: &mut Random, apart: u64) {
        let mut host = vec![0; ROOM as usize];
        pattern::fill(&mut host, 3, 0);
        copy::host_to_device(&self.stream, &self.array.span(), &host, LONG).unwrap();
        copy::fill(&self.stream, &self.dense.span(), 0xEE).unwrap();
        let mut expected = vec![0xEE; ROOM as usize];
        let copies: Vec<_> = (0..ROOM / apart)
            .map(|index| {
                let (to, from) =
                    (index * apart + random.below(40), index * apart + random.below(40));
                let len = random.below(apart - 40);
                let bytes = &host[from as usize..(from + len) as usize];
                expected[to as usize..(to + len) as usize].copy_from_slice(bytes);
                let slice = |memory: &DeviceMemory, at| memory.span().slice(at, len).unwrap();
                (slice(&self.dense, to), slice(&self.array, from))
            })
            .collect();
        self.copies.copy_many(&self.stream, &copies).unwrap();
        copy::device_to_host(&self.stream, &mut host, &self.dense.span(), LONG).unwrap();
        assert!(host == expected, "many copies by few launches");
        println!("{} copies by few launches: right", copies.len());
    }

    /// GB/s of dense bytes, by the device's clock.
    fn speed(&self, layout: &StridedLayout) -> [f64; 2] {
        let (bytes, address) = (layout.bytes().unwrap(), self.array.span().address());
        let dense = self.dense.span().slice(0, bytes).unwrap();
        [true, false].map(|gather| {
            let once = || {
                // SAFETY: the layouts of `figures` are inside the array.
                let done = unsafe {
                    match gather {
                        true => self.copies.gather(&self.stream, &dense, address, layout),
                        false => self.copies.scatter(&self.stream, address, layout, &dense),
                    }
                };
                done.unwrap();
            };
            once();
            let (start, end) = (self.event(), self.event());
            start.record(&self.stream).unwrap();
            (0..10).for_each(|_| once());
            end.record(&self.stream).unwrap();
            end.wait(LONG).unwrap();
            rate(10 * bytes, end.since(&start).unwrap())
        })
    }

    fn event(&self) -> Event {
        Event::timed(self.stream.context()).unwrap()
    }
}

/// The items of `layout` in C order, one after the other.
fn walk(layout: &StridedLayout, first: u64, bytes: &[u8]) -> Vec<u8> {
    let item = layout.itemsize as usize;
    let mut offsets = vec![first as i64];
    for (&size, &stride) in layout.shape.iter().zip(&layout.strides) {
        let along = |at: &i64| {
            let at = *at;
            (0..size as i64).map(move |index| at + index * stride)
        };
        offsets = offsets.iter().flat_map(along).collect();
    }
    offsets.iter().flat_map(|&at| &bytes[at as usize..][..item]).copied().collect()
}

/// Measures layouts of float32 that occur in simulations.
pub fn figures(context: &Context) {
    let bench = Bench::new(context, 1 << 30);
    let layouts: [(&str, &[u64], &[i64]); 8] = [
        ("dense", &[256, 512, 512], &[512 * 512 * 4, 512 * 4, 4]),
        ("inside of 4 halo points", &[248, 504, 504], &[512 * 512 * 4, 512 * 4, 4]),
        ("every other point", &[256, 256, 256], &[512 * 512 * 8, 512 * 8, 8]),
        ("Fortran order", &[512, 512, 256], &[4, 512 * 4, 512 * 512 * 4]),
        ("transposed matrix", &[8192, 8192], &[4, 8192 * 4]),
        ("reversed", &[256 * 512 * 512], &[-4]),
        ("rows of 2 KiB", &[65536, 512], &[4096, 4]),
        ("rows of 32 KiB", &[4096, 8192], &[65536, 4]),
    ];
    for (name, shape, strides) in layouts {
        let (shape, strides) = (shape.to_vec(), strides.to_vec());
        let layout = StridedLayout { shape, strides, itemsize: 4 };
        if name == "reversed" {
            bench.reversed(&layout);
            continue;
        }
        let [gather, scatter] = bench.speed(&layout);
        println!("strided, {name}: gather {gather:.0}, scatter {scatter:.0} GB/s of items");
    }
    drop(bench);
    wait_for_releases();
}

impl Bench {
    /// Measures a layout that begins at its highest address.
    fn reversed(&self, layout: &StridedLayout) {
        let bytes = layout.bytes().unwrap();
        let address = self.array.span().address() + bytes - layout.itemsize;
        let dense = self.dense.span().slice(0, bytes).unwrap();
        let (start, end) = (self.event(), self.event());
        start.record(&self.stream).unwrap();
        // SAFETY: it ends where the array begins.
        unsafe { self.copies.gather(&self.stream, &dense, address, layout) }.unwrap();
        end.record(&self.stream).unwrap();
        end.wait(LONG).unwrap();
        let gather = rate(bytes, end.since(&start).unwrap());
        println!("strided, reversed: gather {gather:.0} GB/s of items");
    }
}
