/* SPDX-License-Identifier: MPL-2.0 */
// Breaks the GPU for the program that it is loaded into: a kernel writes to an address that is none, in each CUDA context.
//
//   cc -shared -fPIC -O2 -pthread -I$CUPTI/include break.c -L$CUPTI/lib64 -lcupti -ldl -o libbreak.so      (tests/gpu/run.sh does it)
//   CUDA_INJECTION64_PATH=$PWD/libbreak.so BREAK_WHEN=now BREAK_BY=wild gst-launch-1.0 …
//
// CUDA loads the library into any program that calls cuInit, and calls InitializeInjection. CUPTI then tells which contexts are
// made. Once the file $BREAK_WHEN is there, a kernel is launched in each of them: "wild" writes to a wrong address, which is error
// 700; "endless" fills the GPU and never ends. What came of it is said on stderr.
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTEXTS = 32 };

static CUcontext contexts[CONTEXTS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static const char kernels[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry wild() {\n"
    "  .reg .u64 %a;\n  .reg .u32 %v;\n"
    "  mov.u64 %a, 16;\n  mov.u32 %v, 1;\n  st.global.u32 [%a], %v;\n  ret;\n}\n"
    ".visible .entry endless() {\n"
    "again:\n  bar.sync 0;\n  bra again;\n}\n";

// The program's own driver, of which this library must not load another one.
#define DRIVER(name) ((__typeof__(&name))driver(#name))

static void *driver(const char *name) {
    static void *library;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    char versioned[64];
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    void *found = library ? dlsym(library, versioned) : NULL;
    found = found ? found : library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "break: the driver has no %s\n", name);
        _exit(9);
    }
    return found;
}

static void CUPTIAPI note(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    (void)user, (void)domain;
    CUcontext context = ((const CUpti_ResourceData *)data)->context;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < CONTEXTS; i++)
        if (contexts[i] == (id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED ? NULL : context)) {
            contexts[i] = id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED ? context : NULL;
            break;
        }
    pthread_mutex_unlock(&mutex);
}

static CUresult launch(CUcontext context, const char *kernel) {
    CUmodule module;
    CUfunction function;
    CUstream stream;
    int endless = !strcmp(kernel, "endless");
    CUresult result = DRIVER(cuCtxPushCurrent)(context);
    if (!result)
        result = DRIVER(cuModuleLoadData)(&module, kernels);
    if (!result)
        result = DRIVER(cuModuleGetFunction)(&function, module, kernel);
    if (!result)
        result = DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
    if (!result)
        result = DRIVER(cuLaunchKernel)(function, endless ? 1 << 16 : 1, 1, 1, endless ? 1024 : 1, 1, 1, 0, stream, NULL, NULL);
    if (!result && !endless)
        result = DRIVER(cuStreamSynchronize)(stream);
    return result;
}

static void *wait_and_break(void *none) {
    (void)none;
    const char *when = getenv("BREAK_WHEN"), *by = getenv("BREAK_BY");
    while (!when || access(when, F_OK))
        poll(NULL, 0, 20);
    // One that is gone by now, as where a file ends and the next one begins, breaks nothing.
    for (int broken = 0; !broken; poll(NULL, 0, 20)) {
        CUcontext now[CONTEXTS];
        pthread_mutex_lock(&mutex);
        memcpy(now, contexts, sizeof now);
        pthread_mutex_unlock(&mutex);
        for (int i = 0; i < CONTEXTS; i++)
            if (now[i]) {
                fprintf(stderr, "break: %s in context %p begins\n", by ? by : "wild", (void *)now[i]);
                CUresult result = launch(now[i], by ? by : "wild");
                broken |= result == CUDA_ERROR_ILLEGAL_ADDRESS || (result == CUDA_SUCCESS && by && !strcmp(by, "endless"));
                fprintf(stderr, "break: %s in context %p: error %d\n", by ? by : "wild", (void *)now[i], result);
            }
    }
    return NULL;
}

// CUDA calls it by this name; nonzero is success.
int InitializeInjection(void) {
    CUpti_SubscriberHandle subscriber;
    CUptiResult result = cuptiSubscribe(&subscriber, note, NULL);
    if (!result)
        result = cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
    if (!result)
        result = cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
    pthread_t thread;
    if (result || pthread_create(&thread, NULL, wait_and_break, NULL)) {
        const char *why = NULL;
        cuptiGetResultString(result, &why);
        fprintf(stderr, "break: CUPTI refuses: %s\n", why ? why : "?");
        return 0;
    }
    return 1;
}
