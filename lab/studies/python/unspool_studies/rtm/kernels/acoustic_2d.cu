// One time step of the two-dimensional scheme, the same operations in the same order as the CPU's
// propagator: what is fused into one rounding is written as `fmaf`, and the text is compiled with
// --fmad=false, so that nothing else is.
//
// Fields are padded, x slow and z fast; the outer four cells stay zero and are never written.

// Amplitudes below this are silence: else ever smaller numbers would run ahead of every wave.
#define SILENCE 1e-18f
#define HALO 4

// Replaces `older`, the level two steps back, by the next one; `push` is v^2 dt^2, `damp_*` is
// sigma dt / 2 along one axis. One thread a cell: x block and thread along z, y along x.
extern "C" __global__ void advance_2d(
    float *__restrict__ older, const float *__restrict__ newer, const float *__restrict__ push,
    const float *__restrict__ damp_x, const float *__restrict__ damp_z, int rows, int columns,
    float centre, float x1, float x2, float x3, float x4, float z1, float z2, float z3, float z4) {
    const int z = HALO + (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int x = HALO + (int)(blockIdx.y * blockDim.y + threadIdx.y);
    if (x >= rows - HALO || z >= columns - HALO) {
        return;
    }
    const int at = x * columns + z;
    const float along_x[4] = {x1, x2, x3, x4};
    const float along_z[4] = {z1, z2, z3, z4};
    const float now = newer[at];
    float laplacian = centre * now;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int far = (i + 1) * columns;
        laplacian = fmaf(along_z[i], newer[at - i - 1] + newer[at + i + 1], laplacian);
        laplacian = fmaf(along_x[i], newer[at - far] + newer[at + far], laplacian);
    }
    const float damp = damp_x[x] + damp_z[z];
    const float kept = fmaf(damp - 1.0f, older[at], 2.0f * now);
    const float next = fmaf(push[at], laplacian, kept) / (1.0f + damp);
    older[at] = fabsf(next) < SILENCE ? 0.0f : next;
}
