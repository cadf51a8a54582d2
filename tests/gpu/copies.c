/* SPDX-License-Identifier: MPL-2.0 */
// Counts the bytes that a program moves between the host and the GPU: the proof that frames stay where they are.
//
//   cc -shared -fPIC -O2 -I$CUPTI/include copies.c -L$CUPTI/lib64 -lcupti -o libcopies.so      (tests/gpu/run.sh does it)
//   CUDA_INJECTION64_PATH=$PWD/libcopies.so COPIES_OUT=copies.json gst-launch-1.0 …
//
// CUDA loads the library into any program that calls cuInit, and calls InitializeInjection. CUPTI then reports every copy,
// of any API. At exit one line of JSON is appended to $COPIES_OUT: for each kind of copy
// {"count","bytes"}, of the copies between host and GPU also how many bytes came from or went to pageable and pinned
// memory; in addition the kernels, and the page-locked memory that kernels could write to without a copy being made.
//
// Two runs of different length separate the cost of a frame from that of the start: figures.py divides.
#include <cupti.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 20, KINDS = 11 };

struct tally {
    uint64_t count, bytes;
};

// By CUpti_ActivityMemcpyKind. Copies to and from arrays count with those of plain memory.
static const char *const names[KINDS] = {"unknown", "htod", "dtoh", "htod", "dtoh", "dtod",
                                         "dtod",    "dtod", "dtod", "htoh", "ptop"};
static struct tally copies[KINDS], memsets, pinned_allocations;
// Host's side of htod and dtoh: pageable, pinned, or another kind of memory.
static struct tally host_side[3];
static uint64_t kernels, lost;

static void add(struct tally *tally, uint64_t bytes) {
    // CUPTI hands out buffers from one thread of its own, but the flush at exit comes from ours.
    __atomic_fetch_add(&tally->count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&tally->bytes, bytes, __ATOMIC_RELAXED);
}

static void count_copy(const CUpti_ActivityMemcpy5 *copy) {
    unsigned kind = copy->copyKind < KINDS ? copy->copyKind : 0;
    add(&copies[kind], copy->bytes);
    int to_gpu = !strcmp(names[kind], "htod"), from_gpu = !strcmp(names[kind], "dtoh");
    if (!to_gpu && !from_gpu)
        return;
    unsigned memory = to_gpu ? copy->srcKind : copy->dstKind;
    add(&host_side[memory == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE ? 0 : memory == CUPTI_ACTIVITY_MEMORY_KIND_PINNED ? 1 : 2],
        copy->bytes);
}

static void count(const CUpti_Activity *record) {
    switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        count_copy((const CUpti_ActivityMemcpy5 *)record);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        add(&copies[CUPTI_ACTIVITY_MEMCPY_KIND_PTOP], ((const CUpti_ActivityMemcpyPtoP4 *)record)->bytes);
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        add(&memsets, ((const CUpti_ActivityMemset4 *)record)->bytes);
        break;
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        __atomic_fetch_add(&kernels, 1, __ATOMIC_RELAXED);
        break;
    case CUPTI_ACTIVITY_KIND_MEMORY2: {
        const CUpti_ActivityMemory4 *memory = (const CUpti_ActivityMemory4 *)record;
        if (memory->memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_PINNED &&
            memory->memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION)
            add(&pinned_allocations, memory->bytes);
        break;
    }
    default:
        break;
    }
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *records) {
    *size = BUFFER;
    *records = 0;
    *buffer = aligned_alloc(8, BUFFER);
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t used) {
    CUpti_Activity *record = NULL;
    size_t dropped = 0;
    (void)size;
    while (cuptiActivityGetNextRecord(buffer, used, &record) == CUPTI_SUCCESS)
        count(record);
    cuptiActivityGetNumDroppedRecords(context, stream, &dropped);
    __atomic_fetch_add(&lost, dropped, __ATOMIC_RELAXED);
    free(buffer);
}

static void write_report(void) {
    const char *path = getenv("COPIES_OUT");
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    FILE *file = path ? fopen(path, "a") : stderr;
    if (!file) {
        perror(path);
        return;
    }
    fprintf(file, "{");
    static const char *const kinds[] = {"htod", "dtoh", "dtod", "htoh", "ptop", "unknown"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct tally sum = {0, 0};
        for (int kind = 0; kind < KINDS; kind++)
            if (!strcmp(names[kind], kinds[i])) {
                sum.count += copies[kind].count;
                sum.bytes += copies[kind].bytes;
            }
        fprintf(file, "\"%s\":{\"count\":%lu,\"bytes\":%lu},", kinds[i], (unsigned long)sum.count, (unsigned long)sum.bytes);
    }
    fprintf(file, "\"pageable_bytes\":%lu,\"pinned_bytes\":%lu,\"other_bytes\":%lu,", (unsigned long)host_side[0].bytes,
            (unsigned long)host_side[1].bytes, (unsigned long)host_side[2].bytes);
    fprintf(file, "\"memset\":{\"count\":%lu,\"bytes\":%lu},\"pinned_allocated\":{\"count\":%lu,\"bytes\":%lu},",
            (unsigned long)memsets.count, (unsigned long)memsets.bytes, (unsigned long)pinned_allocations.count,
            (unsigned long)pinned_allocations.bytes);
    fprintf(file, "\"kernels\":%lu,\"lost\":%lu}\n", (unsigned long)kernels, (unsigned long)lost);
    if (file != stderr)
        fclose(file);
}

// CUDA calls it by this name; nonzero is success.
int InitializeInjection(void) {
    static const CUpti_ActivityKind watched[] = {CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                                                 CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                                 CUPTI_ACTIVITY_KIND_MEMORY2};
    CUptiResult result = cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    for (size_t i = 0; result == CUPTI_SUCCESS && i < sizeof watched / sizeof *watched; i++)
        result = cuptiActivityEnable(watched[i]);
    if (result != CUPTI_SUCCESS) {
        const char *why = NULL;
        cuptiGetResultString(result, &why);
        fprintf(stderr, "copies: CUPTI refuses: %s\n", why ? why : "?");
        return 0;
    }
    atexit(write_report);
    return 1;
}
