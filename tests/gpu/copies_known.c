/* SPDX-License-Identifier: MPL-2.0 */
// Copies a known number of bytes both ways, by the driver's several ways: the self-test of copies.c.
//
//   cc copies_known.c -ldl -o copies_known && ./copies_known       prints what copies.c must count, as JSON
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long CUdeviceptr;

// Only what is used, by the names that libcuda exports: no toolkit is needed to build this.
struct copy2d {
    size_t src_x, src_y;
    unsigned src_type;
    const void *src_host;
    CUdeviceptr src_device;
    void *src_array;
    size_t src_pitch, dst_x, dst_y;
    unsigned dst_type;
    void *dst_host;
    CUdeviceptr dst_device;
    void *dst_array;
    size_t dst_pitch, width, height;
};
enum { HOST = 1, DEVICE = 2 };

static void *cuda;

static void *named(const char *name) {
    void *function = dlsym(cuda, name);
    if (!function) {
        fprintf(stderr, "libcuda has no %s\n", name);
        exit(2);
    }
    return function;
}

#define CALL(name, types, ...) check(#name, ((int(*) types)named(#name))(__VA_ARGS__))

static void check(const char *name, int result) {
    if (result) {
        fprintf(stderr, "%s: error %d\n", name, result);
        exit(2);
    }
}

int main(void) {
    enum { SIZE = 1 << 20, UP = 300000, DOWN = 70001, PINNED_UP = 4096, ROWS = 100, ROW = 1000, PITCH = 2048, INSIDE = 512 };
    CUdeviceptr device = 0;
    void *context = NULL, *pinned = NULL, *stream = NULL;
    char *pageable = calloc(1, SIZE);
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda || !pageable) {
        fprintf(stderr, "no libcuda: %s\n", dlerror());
        return 2;
    }
    CALL(cuInit, (unsigned), 0);
    CALL(cuDevicePrimaryCtxRetain, (void **, int), &context, 0);
    CALL(cuCtxSetCurrent, (void *), context);
    CALL(cuMemAlloc_v2, (CUdeviceptr *, size_t), &device, SIZE);
    CALL(cuMemHostAlloc, (void **, size_t, unsigned), &pinned, SIZE, 0);
    CALL(cuStreamCreate, (void **, unsigned), &stream, 1);

    CALL(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t), device, pageable, UP);
    CALL(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t), pageable, device, DOWN);
    CALL(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, void *), device, pinned, PINNED_UP, stream);
    struct copy2d rows = {.src_type = DEVICE, .src_device = device, .src_pitch = PITCH, .dst_type = HOST, .dst_host = pinned,
                          .dst_pitch = ROW, .width = ROW, .height = ROWS};
    CALL(cuMemcpy2DAsync_v2, (const struct copy2d *, void *), &rows, stream);
    CALL(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, void *), device, device + SIZE / 2, INSIDE, stream);
    CALL(cuStreamSynchronize, (void *), stream);
    CALL(cuMemFreeHost, (void *), pinned);
    CALL(cuMemFree_v2, (CUdeviceptr), device);
    printf("{\"htod\":{\"count\":2,\"bytes\":%d},\"dtoh\":{\"count\":2,\"bytes\":%d},\"dtod\":{\"count\":1,\"bytes\":%d},"
           "\"pageable_bytes\":%d,\"pinned_bytes\":%d}\n",
           UP + PINNED_UP, DOWN + ROWS * ROW, INSIDE, UP + DOWN, PINNED_UP + ROWS * ROW);
    free(pageable);
    return 0;
}
