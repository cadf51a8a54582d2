/* SPDX-License-Identifier: MPL-2.0 */
/* libnvbufsurface without NVIDIA's hardware, for tests of frames in NVMM memory. All memory is the host's. That of the video
 * hardware is seen by the CPU once it is mapped, and right once it is synchronised. Structures and numbers are those of
 * nvbufsurface.h. fake_fail() chooses the call that fails. */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PLANES 4
enum { DEFAULT, PINNED, DEVICE, UNIFIED, SURFACE_ARRAY, HANDLE, SYSTEM };

typedef struct
{
  uint32_t num_planes, width[PLANES], height[PLANES], pitch[PLANES], offset[PLANES], psize[PLANES], bytesPerPix[PLANES];
  void *reserved[4 * PLANES];
} PlaneParams;

typedef struct { void *addr[PLANES], *eglImage, *reserved[4]; } MappedAddr;

typedef struct
{
  uint32_t width, height, pitch;
  int colorFormat, layout;
  uint64_t bufferDesc;
  uint32_t dataSize;
  void *dataPtr;
  PlaneParams planeParams;
  MappedAddr mappedAddr;
  void *reserved[4];
} Params;

typedef struct
{
  uint32_t gpuId, batchSize, numFilled;
  bool isContiguous;
  int memType;
  Params *surfaceList;
  void *reserved[4];
} Surface;

/* What fake_surface_new() makes; the surface comes first. */
typedef struct
{
  Surface surface;
  Params params;
  char *pixels, *seen;
  size_t size;
} Owned;

/* CUeglFrame: an image of ours points to one, which tests/fakes/cuda_memory.h copies. */
typedef struct
{
  void *plane[3];
  unsigned width, height, depth, pitch, planeCount, channels, frameType, color, format;
} EglFrame;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long maps, syncs, images, mapped, wrong;
static int failing, egl_frame_type = 1;

enum { NOTHING, MAP, SYNC, EGL, NO_ADDRESS, NO_IMAGE };

void fake_fail (int what) { failing = what; }
/* 0 is an array, which is block-linear. */
void fake_egl_frame_type (int type) { egl_frame_type = type; }
/* Successful calls. */
long fake_maps (void) { return maps; }
long fake_syncs (void) { return syncs; }
long fake_images (void) { return images; }
/* What is mapped now. */
long fake_mapped (void) { return mapped; }
/* Calls that the library does not allow, and surfaces that were freed while they were mapped. */
long fake_wrong (void) { return wrong; }
size_t fake_surface_size (void) { return sizeof (Surface); }

static void count (long *what, long change) { pthread_mutex_lock (&mutex); *what += change; pthread_mutex_unlock (&mutex); }

/* A batch of one picture, with planes of those widths, heights and bytes of a pixel. */
void *
fake_surface_new (int type, int color, unsigned planes, const unsigned *width, const unsigned *height, const unsigned *bytes)
{
  Owned *owned = calloc (1, sizeof (Owned));
  Params *params = &owned->params;
  PlaneParams *plane = &params->planeParams;
  plane->num_planes = planes;
  for (unsigned i = 0; i < planes; i++)
    {
      plane->width[i] = width[i];
      plane->height[i] = height[i];
      plane->bytesPerPix[i] = bytes[i];
      plane->pitch[i] = (width[i] * bytes[i] + 255) / 256 * 256;
      plane->psize[i] = plane->pitch[i] * height[i];
      plane->offset[i] = owned->size;
      owned->size += plane->psize[i];
    }
  owned->pixels = calloc (1, owned->size);
  params->width = width[0];
  params->height = height[0];
  params->pitch = plane->pitch[0];
  params->colorFormat = color;
  params->dataSize = owned->size;
  params->dataPtr = type == SURFACE_ARRAY || type == HANDLE ? NULL : owned->pixels;
  owned->surface.batchSize = owned->surface.numFilled = 1;
  owned->surface.memType = type;
  owned->surface.surfaceList = params;
  return owned;
}

void
fake_surface_free (void *surface)
{
  Owned *owned = surface;
  count (&wrong, owned->params.mappedAddr.addr[0] || owned->params.mappedAddr.eglImage);
  free (owned->pixels);
  free (owned);
}

char *fake_pixels (Owned *owned, int plane) { return owned->pixels + owned->params.planeParams.offset[plane]; }
size_t fake_bytes (Owned *owned) { return owned->size; }
unsigned fake_pitch (Owned *owned, int plane) { return owned->params.planeParams.pitch[plane]; }

/* Changes a field; of planes the second one, where there is one. */
int
fake_set (Owned *owned, const char *field, uint64_t value)
{
  Surface *surface = &owned->surface;
  Params *params = &owned->params;
  PlaneParams *plane = &params->planeParams;
  int i = plane->num_planes > 1;
#define SET(of, name) if (!strcmp (field, #name)) return (of)->name = (typeof ((of)->name)) value, 1
#define SET_PLANE(name) if (!strcmp (field, #name "[]")) return plane->name[i] = value, 1
  SET (surface, gpuId); SET (surface, batchSize); SET (surface, numFilled); SET (surface, memType); SET (surface, surfaceList);
  SET (params, width); SET (params, height); SET (params, colorFormat); SET (params, layout); SET (params, dataSize);
  SET (params, dataPtr); SET (plane, num_planes);
  SET_PLANE (width); SET_PLANE (height); SET_PLANE (pitch); SET_PLANE (offset); SET_PLANE (psize); SET_PLANE (bytesPerPix);
  return 0;
}

static bool is_hardware (Surface *surface) { return surface->memType == SURFACE_ARRAY || surface->memType == HANDLE; }

int
NvBufSurfaceMap (Surface *surface, int index, int plane, int type)
{
  Owned *owned = (Owned *) surface;
  MappedAddr *to = &owned->params.mappedAddr;
  bool is_wrong = index != 0 || plane != -1 || type != 0 || to->addr[0] || !(is_hardware (surface) || surface->memType == UNIFIED);
  count (&wrong, is_wrong);
  if (is_wrong || failing == MAP)
    return -1;
  char *start = owned->pixels;
  if (is_hardware (surface))
    start = owned->seen = memset (malloc (owned->size), 0xee, owned->size);
  for (unsigned i = 0; i < owned->params.planeParams.num_planes; i++)
    to->addr[i] = failing == NO_ADDRESS && i > 0 ? NULL : start + owned->params.planeParams.offset[i];
  count (&maps, 1);
  count (&mapped, 1);
  return 0;
}

int
NvBufSurfaceSyncForCpu (Surface *surface, int index, int plane)
{
  Owned *owned = (Owned *) surface;
  bool is_wrong = index != 0 || plane != -1 || !owned->params.mappedAddr.addr[0] || !is_hardware (surface);
  count (&wrong, is_wrong);
  if (is_wrong || failing == SYNC)
    return -1;
  memcpy (owned->seen, owned->pixels, owned->size);
  count (&syncs, 1);
  return 0;
}

int
NvBufSurfaceUnMap (Surface *surface, int index, int plane)
{
  Owned *owned = (Owned *) surface;
  MappedAddr *to = &owned->params.mappedAddr;
  bool is_wrong = index != 0 || plane != -1 || !to->addr[0];
  count (&wrong, is_wrong);
  if (is_wrong)
    return -1;
  memset (to->addr, 0, sizeof to->addr);
  free (owned->seen);
  owned->seen = NULL;
  count (&mapped, -1);
  return 0;
}

int
NvBufSurfaceMapEglImage (Surface *surface, int index)
{
  Owned *owned = (Owned *) surface;
  PlaneParams *plane = &owned->params.planeParams;
  bool is_wrong = index != 0 || owned->params.mappedAddr.eglImage || surface->memType != SURFACE_ARRAY;
  count (&wrong, is_wrong);
  if (is_wrong || failing == EGL)
    return -1;
  if (failing == NO_IMAGE)
    return 0;
  EglFrame *frame = calloc (1, sizeof (EglFrame));
  for (unsigned i = 0; i < plane->num_planes; i++)
    frame->plane[i] = owned->pixels + plane->offset[i];
  frame->width = plane->width[0];
  frame->height = plane->height[0];
  frame->pitch = plane->pitch[0];
  frame->planeCount = plane->num_planes;
  frame->frameType = egl_frame_type;
  owned->params.mappedAddr.eglImage = frame;
  count (&images, 1);
  count (&mapped, 1);
  return 0;
}

int
NvBufSurfaceUnMapEglImage (Surface *surface, int index)
{
  Owned *owned = (Owned *) surface;
  if (failing == NO_IMAGE)
    return 0;
  bool is_wrong = index != 0 || !owned->params.mappedAddr.eglImage;
  count (&wrong, is_wrong);
  if (is_wrong)
    return -1;
  free (owned->params.mappedAddr.eglImage);
  owned->params.mappedAddr.eglImage = NULL;
  count (&mapped, -1);
  return 0;
}
