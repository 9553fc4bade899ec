// Sources, receivers and the imaging condition, in any number of dimensions. No two threads write
// the same cell and none adds atomically, so every run gives the same bits.

// Which row of a signal or a record is meant lies in device memory, as `*begun + row`: so that the
// same launches can be replayed for row after row.

// Adds a row of `values` (`width` points to a row) to `field`. One thread a cell: what cell c
// receives is entries first[c] to first[c + 1], in the order of the points, each with its weight.
extern "C" __global__ void inject(float *__restrict__ field, const int *__restrict__ cells,
                                  const int *__restrict__ first, const int *__restrict__ points,
                                  const float *__restrict__ weights,
                                  const float *__restrict__ scale, int count,
                                  const float *__restrict__ values, int width,
                                  const int *__restrict__ begun, int row) {
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= count) {
        return;
    }
    const float *now = values + (long long)(*begun + row) * width;
    float value = field[cells[c]];
    for (int e = first[c]; e < first[c + 1]; e++) {
        value += weights[e] * now[points[e]] * scale[c];
    }
    field[cells[c]] = value;
}

// Reads `field` at every point into a row of `values`. One thread a point, whose `corners` cells
// and weights lie one after another.
extern "C" __global__ void record(const float *__restrict__ field, const int *__restrict__ cells,
                                  const float *__restrict__ weights, int corners, int count,
                                  float *__restrict__ values, const int *__restrict__ begun,
                                  int row) {
    const int p = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (p >= count) {
        return;
    }
    float value = 0.0f;
    for (int i = 0; i < corners; i++) {
        const long long at = (long long)p * corners + i;
        value += weights[at] * field[cells[at]];
    }
    values[(long long)(*begun + row) * count + p] = value;
}

// So many rows are done. One thread.
extern "C" __global__ void finish_rows(int *begun, int rows) {
    *begun += rows;
}

// Adds forward * backward to `image` and forward^2 to `light`, cell by cell.
extern "C" __global__ void correlate(float *__restrict__ image, float *__restrict__ light,
                                     const float *__restrict__ forward,
                                     const float *__restrict__ backward, long long cells) {
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < cells) {
        const float u = forward[at];
        image[at] += u * backward[at];
        light[at] += u * u;
    }
}
