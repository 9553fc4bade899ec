//! Fields to encode: acoustic waves at several times, and data that is hard to compress.

/// A field with its shape, slowest dimension first.
pub struct Field {
    pub name: String,
    pub shape: Vec<u64>,
    pub values: Vec<f32>,
}

impl Field {
    fn new(name: &str, shape: &[u64], values: Vec<f32>) -> Field {
        Field { name: name.to_owned(), shape: shape.to_vec(), values }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|x| x.to_le_bytes()).collect()
    }
}

/// Weights of the eighth-order second derivative.
const WEIGHTS: [f32; 5] = [-205.0 / 72.0, 8.0 / 5.0, -1.0 / 5.0, 8.0 / 315.0, -1.0 / 560.0];
const MARGIN: usize = 4;

/// An acoustic wave of constant density on a grid of 10 m, with steps of 1 ms, from a Ricker
/// wavelet; outside of the grid it is 0.
struct Wave {
    /// nz, ny, nx; nz is 1 in two dimensions.
    shape: [usize; 3],
    /// (velocity * step / spacing)^2
    courant: Vec<f32>,
    now: Vec<f32>,
    before: Vec<f32>,
    source: usize,
    steps: u32,
    frequency: f32,
}

impl Wave {
    fn new(shape: [usize; 3], frequency: f32) -> Wave {
        let [nz, ny, nx] = shape;
        let n = nz * ny * nx;
        let velocity = |i: usize| {
            let (z, y, x) = (i / (ny * nx), i / nx % ny, i % nx);
            let depth = 500 * y / ny;
            let layered = 1500.0 + 250.0 * (depth / 60) as f32;
            let from = |at: usize, size: usize| (at as f32 - size as f32 / 2.0) / size as f32;
            let distance = from(x, nx).powi(2) + from(y, ny).powi(2) + from(z, nz).powi(2);
            if nz > 1 || distance > 0.03 { layered.min(3500.0) } else { 4500.0 }
        };
        let courant = (0..n).map(|i| (velocity(i) * 1e-3 / 10.0).powi(2)).collect();
        let source = (nz / 2 * ny + ny / 16 + MARGIN) * nx + nx / 3;
        Wave {
            shape,
            courant,
            now: vec![0.0; n],
            before: vec![0.0; n],
            source,
            steps: 0,
            frequency,
        }
    }

    fn step(&mut self) {
        let [nz, ny, nx] = self.shape;
        let deep = if nz > 1 { MARGIN..nz - MARGIN } else { 0..1 };
        for z in deep {
            for y in MARGIN..ny - MARGIN {
                let row = (z * ny + y) * nx;
                for i in row + MARGIN..row + nx - MARGIN {
                    let (now, plane) = (&self.now, ny * nx);
                    let mut sum = WEIGHTS[0] * now[i] * if nz > 1 { 3.0 } else { 2.0 };
                    for (k, weight) in WEIGHTS.iter().enumerate().skip(1) {
                        sum += weight * (now[i - k] + now[i + k]);
                        sum += weight * (now[i - k * nx] + now[i + k * nx]);
                        if nz > 1 {
                            sum += weight * (now[i - k * plane] + now[i + k * plane]);
                        }
                    }
                    self.before[i] = 2.0 * now[i] - self.before[i] + self.courant[i] * sum;
                }
            }
        }
        let phase = std::f32::consts::PI * self.frequency * (self.steps as f32 * 1e-3 - 0.1);
        self.before[self.source] += (1.0 - 2.0 * phase * phase) * (-phase * phase).exp();
        std::mem::swap(&mut self.now, &mut self.before);
        self.steps += 1;
    }

    fn until(&mut self, steps: u32) -> Vec<f32> {
        while self.steps < steps {
            self.step();
        }
        self.now.clone()
    }
}

/// The names of [`waves_2d`].
pub const WAVES_2D: [&str; 4] = ["2-D wave 400", "2-D wave 1200", "2-D wave 2000", "2-D wave 3000"];
/// The names of [`waves_3d`].
pub const WAVES_3D: [&str; 3] = ["3-D wave 200", "3-D wave 450", "3-D wave 900"];
/// The names of [`others`].
pub const OTHERS: [&str; 3] = ["zeros", "one in eight", "uniform noise"];

/// A wave in two dimensions early, in the middle and late: 3 MB each.
pub fn waves_2d() -> Vec<Field> {
    let mut wave = Wave::new([1, 500, 1500], 12.0);
    let mut field = |name, steps| Field::new(name, &[500, 1500], wave.until(steps));
    let [a, b, c, d] = WAVES_2D;
    vec![field(a, 400), field(b, 1200), field(c, 2000), field(d, 3000)]
}

/// A wave in three dimensions early, in the middle and late: 13 MB each.
pub fn waves_3d() -> Vec<Field> {
    let mut wave = Wave::new([100, 160, 200], 12.0);
    let mut field = |name, steps| Field::new(name, &[100, 160, 200], wave.until(steps));
    let [a, b, c] = WAVES_3D;
    vec![field(a, 200), field(b, 450), field(c, 900)]
}

fn noise(state: &mut u32) -> f32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (*state >> 8) as f32 / (1 << 24) as f32
}

/// Data without waves: zeros, one value in eight at random places, noise.
pub fn others() -> Vec<Field> {
    let (n, mut state) = (1 << 20, 1);
    let shape = [n as u64];
    let sparse = |_| {
        let taken = noise(&mut state) < 0.125;
        let value = noise(&mut state);
        if taken { value } else { 0.0 }
    };
    let sparse = (0..n).map(sparse).collect();
    let uniform = (0..n).map(|_| noise(&mut state)).collect();
    vec![
        Field::new(OTHERS[0], &shape, vec![0.0; n]),
        Field::new(OTHERS[1], &shape, sparse),
        Field::new(OTHERS[2], &shape, uniform),
    ]
}
