/* SPDX-License-Identifier: MPL-2.0 */
/* TensorRT 10 for the driver of cuda.c: any plan is a model of up to two pictures of 8x8, or where its last byte but one says so of
 * 32x32 to 64x64. The byte before that is how many numbers an input "values" has, where it has one; no run takes a first one below 0.
 * The one before that is how many profiles there are, where there are several: the first one takes a single number only.
 * Its output is the pictures, but for the first number of each, which says how many were run together, divided by 1024; or
 * fake_wrong() says what is wrong with them. Functions stand in the tables of virtual functions as core/src/backends/tensorrt/abi has
 * them; those that are not called there are NULL. */

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Of cuda.c. */
int fake_enqueue (void *stream, int count, void *const *address, void *context, void (*work) (const long *, int), const long data[8]);
void *fake_current (void);

typedef struct { int32_t count; int64_t dims[8]; } Dims;

/* A public object is a table and its implementation, which has a table too. */
typedef struct {
  void **table; void **implementation; void **own;
  Dims dims; int64_t is_open, values, profiles, profile; void *address[3]; void *context;
} Object;

#define SLOTS 64
static void *deletes[SLOTS], *runtime[SLOTS], *engine[SLOTS], *context[SLOTS];

static void *
object (void **own)
{
  Object *object = calloc (1, sizeof *object);
  object->table = deletes;
  object->own = own;
  object->implementation = (void **) &object->own;
  object->context = fake_current ();
  return object;
}

static Object *
of (void *implementation)
{
  return (Object *) ((char *) implementation - offsetof (Object, own));
}

static Dims
dims (int64_t pictures, int64_t side)
{
  return (Dims) { 4, { pictures, 3, side, side } };
}

/* One that is made of another, for pictures of the same size. */
static void *
object_of (void *implementation, void **own)
{
  Object *made = object (own);
  made->is_open = of (implementation)->is_open;
  made->values = of (implementation)->values;
  made->profiles = of (implementation)->profiles;
  made->dims = dims (-1, made->is_open ? -1 : 8);
  return made;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long held, refused, begun, wrong, runs;

static void
set (long *what, long value)
{
  pthread_mutex_lock (&mutex);
  *what = value;
  pthread_cond_broadcast (&changed);
  pthread_mutex_unlock (&mutex);
}

/* Whether deserialising waits, but of plans that end with a 1. That of one which ends with a 2 never ends. */
void fake_hold (long hold) { set (&held, hold); }
/* What is wrong with the outputs: nothing, the last picture of two, a number that is none, a graph's run, or each run in another way. */
enum { RIGHT, PLACE, NOT_FINITE, REPLAY, UNSTEADY };
void fake_wrong (long kind) { set (&wrong, kind); }

/* Whether it fails. */
void fake_refuse (long refuse) { set (&refused, refuse); }

/* Returns once so many engines have been asked for, and says how many. */
long
fake_engines (long at_least)
{
  pthread_mutex_lock (&mutex);
  while (begun < at_least)
    pthread_cond_wait (&changed, &mutex);
  long engines = begun;
  pthread_mutex_unlock (&mutex);
  return engines;
}

static void *
deserialize (void *this, const void *plan, size_t size, void *none)
{
  int last = ((const char *) plan)[size - 1];
  pthread_mutex_lock (&mutex);
  begun++;
  pthread_cond_broadcast (&changed);
  while (last == 2 || (held && !last))
    pthread_cond_wait (&changed, &mutex);
  Object *made = refused ? NULL : object_of (this, engine);
  if (made)
    {
      made->values = ((const char *) plan)[size - 3];
      made->profiles = ((const char *) plan)[size - 4] > 1 ? ((const char *) plan)[size - 4] : 1;
    }
  if (made && ((const char *) plan)[size - 2])
    {
      made->is_open = 1;
      made->dims = dims (-1, -1);
    }
  pthread_mutex_unlock (&mutex);
  return made;
}

static void *create_context (void *this, int32_t strategy) { return object_of (this, context); }
static void delete (void *this) { free (this); }

static const char *const names[] = { "images", "output0", "values" };
static int32_t io_tensors (void *this) { return of (this)->values ? 3 : 2; }
static const char *io_name (void *this, int32_t index) { return names[index]; }
static int32_t io_mode (void *this, const char *name) { return strcmp (name, "output0") ? 1 : 2; }
static int32_t zero (void *this) { return 0; }
static int32_t profiles (void *this) { return of (this)->profiles; }

static Dims
shape (void *this, const char *name)
{
  Object *object = of (this);
  if (strcmp (name, "values"))
    return object->dims;
  return (Dims) { 1, { object->own == engine && object->profiles > 1 ? -1 : object->values } };
}

static Dims
profile_shape (void *this, const char *name, int32_t profile, int32_t which)
{
  if (!strcmp (name, "values"))
    return (Dims) { 1, { of (this)->profiles > 1 && profile == 0 ? 1 : of (this)->values } };
  return dims (which ? 2 : 1, of (this)->is_open ? (which ? 64 : 32) : 8);
}

static size_t device_memory (void *this) { return 0; }

static _Bool
set_profile (void *this, int32_t profile, void *stream)
{
  of (this)->profile = profile;
  return 1;
}

static _Bool
set_shape (void *this, const char *name, const Dims *dims)
{
  if (!strcmp (name, "values") && of (this)->profiles > 1 && of (this)->profile == 0)
    return 0;
  if (!strcmp (name, "values"))
    return dims->count == 1 && dims->dims[0] == of (this)->values;
  of (this)->dims = *dims;
  return 1;
}

static _Bool
set_address (void *this, const char *name, void *address)
{
  for (int i = 0; i < 3; i++)
    if (!strcmp (name, names[i]))
      of (this)->address[i] = address;
  return 1;
}

static void
compute (const long *data, int is_of_graph)
{
  long pictures = data[2], numbers = data[3];
  float *output = (float *) data[1];
  memmove (output, (void *) data[0], pictures * numbers * sizeof *output);
  runs++;
  for (long picture = 0; picture < pictures; picture++, output += numbers)
    {
      output[0] = pictures / 1024.0f;
      for (long i = 0; i < numbers; i++)
        if (wrong == PLACE ? picture == 1 : wrong == REPLAY && is_of_graph)
          output[i] = 0;
        else if (wrong == UNSTEADY)
          output[i] += (runs + i) % 7;
      if (wrong == NOT_FINITE)
        output[5] = NAN;
    }
}

static _Bool
enqueue (void *this, void *stream)
{
  Object *context = of (this);
  long numbers = 3 * context->dims.dims[2] * context->dims.dims[3];
  long data[8] = { (long) context->address[0], (long) context->address[1], context->dims.dims[0], numbers };
  if (context->values && *(float *) context->address[2] < 0)
    return 0;
  return !fake_enqueue (stream, context->values ? 3 : 2, context->address, context->context, compute, data);
}

int32_t getInferLibVersion (void) { return 101600; }

void *
createInferRuntime_INTERNAL (void *logger, int32_t version)
{
  deletes[1] = delete;
  runtime[3] = deserialize;
  engine[5] = create_context;
  engine[7] = device_memory;
  engine[10] = profiles;
  engine[19] = shape;
  engine[20] = zero; /* f32 */
  engine[21] = zero; /* on the GPU */
  engine[22] = zero; /* no dimensions of others */
  engine[23] = io_mode;
  engine[26] = zero; /* linear */
  engine[29] = profile_shape;
  engine[30] = io_tensors;
  engine[31] = io_name;
  engine[33] = zero; /* streams of its own */
  context[17] = set_profile;
  context[21] = set_shape;
  context[22] = shape;
  context[24] = set_address;
  context[37] = enqueue;
  return object (runtime);
}
