// One time step of the scheme in three dimensions: the two-dimensional one with y between x and z.
//
// Fields are padded, x slowest and z fastest; the outer four cells stay zero and are never written.
// The length along z is a multiple of four, so that every row begins at 16 bytes. A thread advances
// four cells along z at once and marches along x with nine planes of its own in registers, so that
// each plane is read from memory once a chunk; what lies beside it comes from the cache.
// (Micikevicius, "3D finite difference computation on GPUs using CUDA", GPGPU-2, 2009.)

#define SILENCE 1e-18f
#define HALO 4
#define WIDE 4

__device__ __forceinline__ void load(float to[WIDE], const float *__restrict__ from) {
    const float4 four = *(const float4 *)from;
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
}

// Replaces `older` by the next level. x block and thread: four cells along z each; y: along y;
// z block: `planes` planes along x.
extern "C" __global__ void __launch_bounds__(256) advance_3d(
    float *__restrict__ older, const float *__restrict__ newer, const float *__restrict__ push,
    const float *__restrict__ damp_x, const float *__restrict__ damp_y,
    const float *__restrict__ damp_z, int nx, int ny, int nz, int planes, float centre, float x1,
    float x2, float x3, float x4, float y1, float y2, float y3, float y4, float z1, float z2,
    float z3, float z4) {
    const int z = HALO + WIDE * (int)(blockIdx.x * blockDim.x + threadIdx.x);
    const int y = HALO + (int)(blockIdx.y * blockDim.y + threadIdx.y);
    if (y >= ny - HALO || z >= nz - HALO) {
        return;
    }
    const int first = HALO + (int)blockIdx.z * planes;
    const int end = first + planes < nx - HALO ? first + planes : nx - HALO;
    const long long plane = (long long)ny * nz;
    long long at = first * plane + (long long)y * nz + z;
    const float along_x[4] = {x1, x2, x3, x4};
    const float along_y[4] = {y1, y2, y3, y4};
    const float along_z[4] = {z1, z2, z3, z4};
    const float beside = damp_y[y];
    float below[WIDE];
    load(below, damp_z + z);

    // column[i] is the plane x + i - 4 of this thread's four cells.
    float column[9][WIDE];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        load(column[i], newer + at + (i - HALO) * plane);
    }
    for (int x = first; x < end; x++, at += plane) {
        load(column[8], newer + at + HALO * plane);
        float line[3 * WIDE];
        load(line, newer + at - WIDE);
        load(line + 2 * WIDE, newer + at + WIDE);
        float before[4][WIDE], after[4][WIDE];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            load(before[i], newer + at - (i + 1) * nz);
            load(after[i], newer + at + (i + 1) * nz);
        }
        float gone[WIDE], pushed[WIDE], next[WIDE];
        load(gone, older + at);
        load(pushed, push + at);
#pragma unroll
        for (int k = 0; k < WIDE; k++) {
            line[WIDE + k] = column[HALO][k];
        }
#pragma unroll
        for (int k = 0; k < WIDE; k++) {
            const float now = column[HALO][k];
            float laplacian = centre * now;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int at_z = WIDE + k;
                const float sum_z = line[at_z - i - 1] + line[at_z + i + 1];
                const float sum_x = column[HALO - i - 1][k] + column[HALO + i + 1][k];
                laplacian = fmaf(along_z[i], sum_z, laplacian);
                laplacian = fmaf(along_y[i], before[i][k] + after[i][k], laplacian);
                laplacian = fmaf(along_x[i], sum_x, laplacian);
            }
            const float damp = damp_x[x] + beside + below[k];
            const float kept = fmaf(damp - 1.0f, gone[k], 2.0f * now);
            const float value = fmaf(pushed[k], laplacian, kept) / (1.0f + damp);
            next[k] = fabsf(value) < SILENCE ? 0.0f : value;
        }
        float4 four;
        four.x = next[0];
        four.y = next[1];
        four.z = next[2];
        four.w = next[3];
        *(float4 *)(older + at) = four;
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int k = 0; k < WIDE; k++) {
                column[i][k] = column[i + 1][k];
            }
        }
    }
}
