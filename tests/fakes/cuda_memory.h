/* SPDX-License-Identifier: MPL-2.0 */
/* Memory of the driver in cuda.c, which includes this: what is allocated, shared with other processes, known by its address, and
 * copied. */

/* Memory that other processes have opened by its handle. They are in this process, too. */
static struct { char *start; int is_open; } opened[64];
static long frees_of_opened;

/* How often memory was freed that others had open. */
long
fake_frees_of_opened (void)
{
  LOCK;
  return frees_of_opened;
}

/* How many others have open. */
long
fake_opened (void)
{
  LOCK;
  long count = 0;
  for (int i = 0; i < 64; i++)
    count += opened[i].is_open;
  return count;
}

static int
is_opened (char *memory)
{
  for (int i = 0; i < 64; i++)
    if (opened[i].is_open && opened[i].start == memory)
      return 1;
  return 0;
}

static int
release (char *memory)
{
  char *end = memory + malloc_usable_size (memory);
  frees_of_opened += is_opened (memory);
  frees_beside_work += fake_pending () > 0;
  for (Allocation *one = allocations; one < allocations + 4096; one++)
    if (one->start == memory)
      *one = (Allocation) { 0 };
  for (int i = 0; i < 1024; i++)
    if (uses[i].address >= memory && uses[i].address < end)
      {
        busy_frees += streams[uses[i].stream].done < uses[i].position;
        uses[i].address = NULL;
      }
  free (memory);
  return 0;
}

static int
allocate (void **to, size_t bytes)
{
  plan ();
  if (lacking > 0)
    {
      lacking--;
      return NO_MEMORY;
    }
  *to = aligned_alloc (512, (bytes + 511) / 512 * 512);
  if (!*to)
    return FAILED;
  memset (*to, 0, bytes);
  return 0;
}

int
cuMemAlloc_v2 (void **to, size_t bytes)
{
  CALL;
  int failed = allocate (to, bytes);
  if (failed)
    return failed;
  for (Allocation *one = allocations; one < allocations + 4096; one++)
    if (!one->start)
      {
        *one = (Allocation) { *to, (char *) *to + bytes, current () };
        break;
      }
  return 0;
}

int cuMemAllocManaged (void **to, size_t bytes, unsigned flags) { CALL; return allocate (to, bytes); }
int cuMemHostAlloc (void **to, size_t bytes, unsigned flags) { CALL; return allocate (to, bytes); }
int cuMemHostGetDevicePointer_v2 (void **to, void *host, unsigned flags) { CALL; *to = host; return 0; }
int cuMemFree_v2 (void *memory) { ALIVE; return release (memory); }
int cuMemFreeHost (void *memory) { ALIVE; return release (memory); }
int cuMemGetInfo_v2 (size_t *free, size_t *total) { ALIVE; *free = *total = 1 << 30; return 0; }

/* Handles of memory that is shared with other processes: its address, and a word by which one is known. */

typedef struct { char *start; uint64_t word; char rest[48]; } MemHandle;
#define HANDLE_WORD 0x656c646e61682061

static int
is_allocated (char *start)
{
  for (Allocation *one = allocations; one < allocations + 4096; one++)
    if (start && one->start == start)
      return 1;
  return 0;
}

int
cuIpcGetMemHandle (MemHandle *handle, char *memory)
{
  CALL;
  if (!is_allocated (memory))
    return 1;
  *handle = (MemHandle) { memory, HANDLE_WORD, { 0 } };
  return 0;
}

/* Those that open it are servers, of which no call fails. */
int
cuIpcOpenMemHandle_v2 (char **memory, MemHandle handle, unsigned flags)
{
  ALIVE;
  if (handle.word != HANDLE_WORD || !is_allocated (handle.start))
    return 400;
  for (int i = 0; i < 64; i++)
    if (!opened[i].is_open)
      {
        opened[i].start = *memory = handle.start;
        opened[i].is_open = 1;
        return 0;
      }
  return FAILED;
}

int
cuIpcCloseMemHandle (char *memory)
{
  ALIVE;
  for (int i = 0; i < 64; i++)
    if (opened[i].is_open && opened[i].start == memory)
      {
        opened[i].is_open = 0;
        return 0;
      }
  return 1;
}

/* Memory that a test says is a GPU's, of the primary context or of another one. */
static char *foreign;
static size_t foreign_size;
static int foreign_device, is_of_another;

void
fake_memory (char *start, size_t bytes, int device, int another)
{
  LOCK;
  foreign = start;
  foreign_size = bytes;
  foreign_device = device;
  is_of_another = another;
}

/* Contexts and device addresses. */
int
cuPointerGetAttribute (void *data, int attribute, char *pointer)
{
  ALIVE;
  if (pointer < foreign || pointer >= foreign + foreign_size || (attribute != 1 && attribute != 3))
    return 1;
  *(void **) data = attribute == 3 ? (void *) pointer : is_of_another ? (void *) &foreign : (void *) &contexts[foreign_device % GPUS];
  return 0;
}

/* Types, devices, and ranges. */
int
cuPointerGetAttributes (unsigned count, int *attributes, void **data, char *pointer)
{
  ALIVE;
  if (pointer < foreign || pointer >= foreign + foreign_size)
    return 1;
  for (unsigned i = 0; i < count; i++)
    switch (attributes[i])
      {
      case 2: *(unsigned *) data[i] = 2; break;
      case 9: *(int *) data[i] = foreign_device; break;
      case 11: *(char **) data[i] = foreign; break;
      case 12: *(size_t *) data[i] = foreign_size; break;
      default: return 1;
      }
  return 0;
}

/* EGL images, which point to a CUeglFrame, as those of tests/fakes/nvbufsurface.c do */

static long registered;
long fake_registered (void) { return registered; }
int cuGraphicsEGLRegisterImage (void **resource, void *image, unsigned flags) { CALL; *resource = image; registered++; return 0; }
int cuGraphicsResourceGetMappedEglFrame (void *frame, void *resource, unsigned i, unsigned level) { CALL; memcpy (frame, resource, 64); return 0; }
int cuGraphicsUnregisterResource (void *resource) { ALIVE; registered--; return 0; }

int cuMemcpyHtoD_v2 (void *to, const void *from, size_t bytes) { CALL; memcpy (to, from, bytes); return 0; }
int cuMemcpyDtoH_v2 (void *to, const void *from, size_t bytes) { CALL; memcpy (to, from, bytes); return 0; }
int cuMemcpyDtoD_v2 (void *to, const void *from, size_t bytes) { CALL; memmove (to, from, bytes); return 0; }

int
cuMemcpyHtoDAsync_v2 (void *to, const void *from, size_t bytes, void *stream)
{
  CALL;
  memcpy (to, from, bytes);
  return enqueue (stream, 2, (void *const[]) { to, (void *) from });
}

int
cuMemcpyDtoHAsync_v2 (void *to, const void *from, size_t bytes, void *stream)
{
  CALL;
  memcpy (to, from, bytes);
  return enqueue (stream, 2, (void *const[]) { to, (void *) from });
}

int
cuMemcpyDtoDAsync_v2 (void *to, const void *from, size_t bytes, void *stream)
{
  CALL;
  memmove (to, from, bytes);
  return enqueue (stream, 2, (void *const[]) { to, (void *) from });
}

int
cuMemsetD8Async (void *to, unsigned char value, size_t bytes, void *stream)
{
  CALL;
  memset (to, value, bytes);
  return enqueue (stream, 1, &to);
}
