/* SPDX-License-Identifier: MPL-2.0 */
/* What GStreamer's CUDA library needs of a driver beyond what cuda.c has: contexts of its own, which are counted, and copies of
 * rows. It is linked with cuda.c where a test wants that library, which else finds no driver. */

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define NONE 999

int cuCtxPushCurrent_v2 (void *context);
int cuDevicePrimaryCtxRetain (void **to, int device);
int cuMemAlloc_v2 (void **to, size_t bytes);
int cuMemHostAlloc (void **to, size_t bytes, unsigned flags);
int cuStreamCreateWithPriority (void **stream, unsigned flags, int priority);
int cuStreamDestroy_v2 (void *stream);

static atomic_long created, destroyed;

/* How many were ever made, the primary one not counted, and how many are there. */
long fake_contexts_created (void) { return created; }
long fake_contexts (void) { return created - destroyed; }

int
cuCtxCreate_v2 (void **context, unsigned flags, int device)
{
  void *primary;
  int dead = cuDevicePrimaryCtxRetain (&primary, device);
  if (dead)
    return dead;
  *context = calloc (1, 64);
  created++;
  return *context ? cuCtxPushCurrent_v2 (*context) : NONE;
}

int cuCtxDestroy_v2 (void *context) { free (context); destroyed++; return 0; }
int cuCtxEnablePeerAccess (void *context, unsigned flags) { return 0; }
int cuCtxDisablePeerAccess (void *context) { return 0; }
int cuDeviceCanAccessPeer (int *can, int device, int peer) { *can = 0; return 0; }

int cuStreamCreate (void **stream, unsigned flags) { return cuStreamCreateWithPriority (stream, flags, 0); }
int cuStreamDestroy (void *stream) { return cuStreamDestroy_v2 (stream); }
int cuMemAllocHost_v2 (void **to, size_t bytes) { return cuMemHostAlloc (to, bytes, 0); }

int
cuMemAllocPitch_v2 (void **to, size_t *pitch, size_t width, size_t height, unsigned element)
{
  *pitch = (width + 511) / 512 * 512;
  return cuMemAlloc_v2 (to, *pitch * height);
}

typedef struct
{
  size_t x, y;
  int type;
  char *host, *device;
  void *array;
  size_t pitch;
} Side;

typedef struct { Side from, to; size_t width, height; } Copy;

static char *
start (const Side *side)
{
  return (side->type == 1 ? side->host : side->device) + side->y * side->pitch + side->x;
}

int
cuMemcpy2D_v2 (const Copy *copy)
{
  for (size_t row = 0; row < copy->height; row++)
    memmove (start (&copy->to) + row * copy->to.pitch, start (&copy->from) + row * copy->from.pitch, copy->width);
  return 0;
}

int cuMemcpy2DAsync_v2 (const Copy *copy, void *stream) { return cuMemcpy2D_v2 (copy); }

/* Looked for, and not called. */
int cuLaunchKernel (void) { return NONE; }
int cuTexObjectCreate (void) { return NONE; }
int cuTexObjectDestroy (void) { return NONE; }
int cuGraphicsMapResources (void) { return NONE; }
int cuGraphicsUnmapResources (void) { return NONE; }
int cuGraphicsResourceSetMapFlags_v2 (void) { return NONE; }
int cuGraphicsSubResourceGetMappedArray (void) { return NONE; }
int cuGraphicsResourceGetMappedPointer_v2 (void) { return NONE; }
int cuGraphicsGLRegisterImage (void) { return NONE; }
int cuGraphicsGLRegisterBuffer (void) { return NONE; }
int cuGLGetDevices_v2 (void) { return NONE; }
