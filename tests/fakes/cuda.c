/* SPDX-License-Identifier: MPL-2.0 */
/* A CUDA driver without a GPU, for tests of what happens when one of its calls fails. Its memory is the host's, its kernels do
 * nothing, and work that is enqueued is done once something waits for it. fake_fail() chooses the call that fails, fake_break() the
 * end of the GPU, fake_lack() allocations that find no memory, and fake_stick() makes work that is never done. Other processes are
 * told by a file, see plan(). */

#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STREAMS 64
#define WAITS 64
#define NO_MEMORY 2
#define NOT_READY 600
#define FAILED 304 /* of that call alone */

typedef struct
{
  void *context;
  int in_use, capturing;
  long enqueued, done;
  /* Work of other streams that this one's waits for. */
  int waits;
  struct { int stream; long position; } wait[WAITS];
} Stream;

typedef struct { void *context; int stream; long position; } Event;

/* Addresses that a graph's work uses. A module is one too, of no work. */
typedef void (*Work) (const void *data, int is_of_graph);
typedef struct { void *context; int count; char *address[WAITS]; Work work; long data[8]; } Graph;

/* An address that enqueued work uses. */
typedef struct { char *address; int stream; long position; } Use;

/* Number 0 is the default one, NULL. */
static Stream streams[STREAMS];
static long calls_left = -1;
static int has_failed;
static const char *last_call = "";
static long busy_frees, frees_beside_work;
static Use uses[1024];
static unsigned used;
static Graph captured;

/* Where memory of a GPU was allocated. */
typedef struct { char *start, *end; void *context; } Allocation;
static Allocation allocations[4096];
static long mixed;

/* One thread at a time. */
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int lock (void) { return pthread_mutex_lock (&mutex); }
static void unlock (int *locked) { pthread_mutex_unlock (&mutex); }
#define LOCK __attribute__ ((cleanup (unlock), unused)) int locked = lock ()

/* The call after so many more fails; none does with -1. */
void
fake_fail (long after)
{
  LOCK;
  calls_left = after;
  has_failed = 0;
}

int
fake_has_failed (void)
{
  return has_failed;
}

/* The last call that could fail, or the one that did. */
const char *
fake_last_call (void)
{
  return last_call;
}

/* The error that every call returns from now on; 0 as long as all is well. */
static int dead;
static int breaking;
static long works_left = -1;
/* Calls since one has returned it. */
static long calls_when_dead;
static int is_known_dead;

enum { NOW, AT_A_RUN = -1 };

/* The GPU is lost with that error: now, at TensorRT's next run, or with the work after so many. */
void
fake_break (int error, long after)
{
  LOCK;
  breaking = error;
  works_left = after;
  if (after == NOW)
    dead = error;
}

/* How often a lost GPU was used by those who knew. */
long
fake_calls_when_dead (void)
{
  LOCK;
  return calls_when_dead;
}

static int
lost (void)
{
  calls_when_dead += is_known_dead;
  is_known_dead = 1;
  return dead;
}

/* Allocations that find no memory from now on. */
static long lacking;
void fake_lack (long allocations) { LOCK; lacking = allocations; }

/* Whether work that is enqueued is never done. Who waits for it, waits for as long. */
static int is_stuck;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
void fake_stick (long stuck) { LOCK; is_stuck = stuck != 0; pthread_cond_broadcast (&moved); }

/* What the file $GSTTRT_FAKE_PLAN says, for as long as it does: "break NUMBER", "lack" or "stick". It is looked at with each piece of
 * work and with each allocation. */
static void
plan (void)
{
  const char *path = getenv ("GSTTRT_FAKE_PLAN");
  FILE *file = path ? fopen (path, "r") : NULL;
  char word[16] = "";
  int error = 0;
  if (!path)
    return;
  if (file && fscanf (file, "%15s %d", word, &error) < 1)
    word[0] = 0;
  if (file)
    fclose (file);
  if (!strcmp (word, "break"))
    dead = error;
  lacking = !strcmp (word, "lack") ? 1 : 0;
  is_stuck = !strcmp (word, "stick");
}

/* How many pieces of work nothing has waited for. */
long
fake_pending (void)
{
  LOCK;
  long pending = 0;
  for (int i = 0; i < STREAMS; i++)
    pending += streams[i].enqueued - streams[i].done;
  return pending;
}

/* How often memory was freed that such work uses. */
long
fake_busy_frees (void)
{
  return busy_frees;
}

/* How often memory was freed while anything was pending: what kernels use is not known here. */
long
fake_frees_during_work (void)
{
  return frees_beside_work;
}

/* How often work of one context was given what is of another one, which a GPU refuses, or does wrong. */
long
fake_mixed (void)
{
  return mixed;
}

static _Thread_local void *entered_contexts[64];
static _Thread_local int entered;

static void *
current (void)
{
  return entered > 0 ? entered_contexts[entered - 1] : NULL;
}

static void
must_be_same (void *one, void *other)
{
  mixed += one && other && one != other;
}

static int
fails (const char *name)
{
  if (has_failed)
    return 0;
  last_call = name;
  if (calls_left < 0)
    return 0;
  has_failed = calls_left-- == 0;
  return has_failed;
}

/* Of what asks the GPU for something. Waits and frees do not fail: a GPU that cannot even be waited for is gone. */
#define CALL ALIVE; if (fails (__func__)) return FAILED
#define ALIVE LOCK; if (dead) return lost ()

/* Those that need not be made, CU_STREAM_PER_THREAD too, are the default one. */
static int
number (void *stream)
{
  return (uintptr_t) stream < 4096 ? 0 : (int) ((Stream *) stream - streams);
}

/* Of the default stream, the calling thread's. */
static void *
context_of (void *stream)
{
  int n = number (stream);
  return n ? streams[n].context : current ();
}

/* Work that uses so many addresses. */
static int
enqueue (void *stream, int count, void *const *address)
{
  int n = number (stream);
  Stream *on = &streams[n];
  plan ();
  if (works_left > 0 && --works_left == 0)
    dead = breaking;
  for (int i = 0; i < count; i++)
    for (Allocation *one = allocations; one < allocations + 4096; one++)
      if ((char *) address[i] >= one->start && (char *) address[i] < one->end)
        must_be_same (one->context, context_of (stream));
  on->enqueued += !on->capturing;
  for (int i = 0; i < count; i++)
    if (!on->capturing)
      uses[used++ % 1024] = (Use) { address[i], n, on->enqueued };
    else if (captured.count < WAITS)
      captured.address[captured.count++] = address[i];
  return 0;
}

/* As TensorRT does, with what was made in that context. What is captured is done when the graph is launched, with these data. */
int
fake_enqueue (void *stream, int count, void *const *address, void *of, Work work, const long data[8])
{
  CALL;
  if (works_left == AT_A_RUN && breaking)
    {
      dead = breaking;
      return dead;
    }
  must_be_same (of, context_of (stream));
  must_be_same (of, current ());
  int failed = enqueue (stream, count, address);
  if (!failed && streams[number (stream)].capturing)
    {
      captured.work = work;
      memcpy (captured.data, data, sizeof captured.data);
    }
  else if (!failed)
    work (data, 0);
  return failed;
}

static void
finish (int stream, long position)
{
  if (is_stuck)
    return;
  Stream *on = &streams[stream];
  int waits = on->waits;
  if (on->done < position)
    on->done = position;
  on->waits = 0;
  for (int i = 0; i < waits; i++)
    finish (on->wait[i].stream, on->wait[i].position);
}

static void
wait_while_stuck (void)
{
  while (is_stuck && !dead)
    {
      struct timespec until;
      clock_gettime (CLOCK_REALTIME, &until);
      until.tv_nsec += 20000000;
      until.tv_sec += until.tv_nsec / 1000000000;
      until.tv_nsec %= 1000000000;
      pthread_cond_timedwait (&moved, &mutex, &until);
      plan (); /* a file does not wake */
    }
}

static int
give (void **to)
{
  *to = calloc (1, sizeof (Graph));
  if (!*to)
    return FAILED;
  **(Graph **) to = (Graph) { .context = current () };
  return 0;
}

/* The driver, its device and its context */

#define GPUS 16
static int contexts[GPUS];

int cuInit (unsigned flags) { return 0; }
int cuDriverGetVersion (int *version) { *version = 12020; return 0; }
int
cuGetErrorName (int error, const char **text)
{
  *text = error == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
    : error == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "FAKE";
  return 0;
}

int cuGetErrorString (int error, const char **text) { *text = "a test lets it fail"; return 0; }

/* One, but where the environment says otherwise. */
int
cuDeviceGetCount (int *count)
{
  const char *gpus = getenv ("GSTTRT_FAKE_GPUS");
  *count = gpus ? atoi (gpus) : 1;
  return 0;
}

int cuDeviceGet (int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName (char *name, int size, int device) { strncpy (name, "Fake", size); return 0; }
int cuDeviceGetAttribute (int *value, int attribute, int device) { *value = attribute == 75 ? 9 : 0; return 0; }

/* The error that the primary context is refused with; 0 for none. */
static int refusing;
void fake_refuse_contexts (int error) { LOCK; refusing = error; }

int
cuDevicePrimaryCtxRetain (void **to, int device)
{
  ALIVE;
  if (!refusing)
    *to = &contexts[device % GPUS];
  return refusing;
}

int cuDevicePrimaryCtxRelease_v2 (int device) { ALIVE; return 0; }

int
cuCtxPushCurrent_v2 (void *it)
{
  LOCK;
  calls_when_dead += is_known_dead; /* it asks nothing of the GPU */
  if (entered == 64)
    return FAILED;
  entered_contexts[entered++] = it;
  return 0;
}

int
cuCtxPopCurrent_v2 (void **it)
{
  if (entered == 0)
    return FAILED;
  void *top = entered_contexts[--entered];
  if (it)
    *it = top;
  return 0;
}

int cuCtxGetCurrent (void **it) { *it = current (); return 0; }
void *fake_current (void) { return current (); }
int cuCtxGetFlags (unsigned *flags) { *flags = 0; return 0; }
int cuCtxSetFlags (unsigned flags) { return 0; }
int cuCtxGetStreamPriorityRange (int *least, int *greatest) { *least = 0; *greatest = -5; return 0; }

int
cuCtxSynchronize (void)
{
  ALIVE;
  wait_while_stuck ();
  for (int i = 0; i < STREAMS; i++)
    finish (i, streams[i].enqueued);
  return 0;
}

/* Streams and events */

int
cuStreamCreateWithPriority (void **stream, unsigned flags, int priority)
{
  CALL;
  for (int i = 1; i < STREAMS; i++)
    if (!streams[i].in_use)
      {
        streams[i].in_use = 1;
        streams[i].context = current ();
        *stream = &streams[i];
        return 0;
      }
  return FAILED;
}

int cuStreamDestroy_v2 (void *stream) { ALIVE; streams[number (stream)].in_use = 0; return 0; }

int
cuStreamSynchronize (void *stream)
{
  ALIVE;
  wait_while_stuck ();
  if (dead)
    return lost ();
  finish (number (stream), streams[number (stream)].enqueued);
  return 0;
}

int
cuStreamBeginCapture_v2 (void *stream, int mode)
{
  CALL;
  streams[number (stream)].capturing = 1;
  captured.count = 0;
  captured.work = NULL;
  return 0;
}

int
cuStreamEndCapture (void *stream, void **graph)
{
  ALIVE;
  streams[number (stream)].capturing = 0;
  if (fails (__func__))
    return FAILED;
  if (give (graph))
    return FAILED;
  captured.context = streams[number (stream)].context;
  **(Graph **) graph = captured;
  return 0;
}

int
cuStreamWaitEvent (void *stream, void *event, unsigned flags)
{
  CALL;
  Stream *on = &streams[number (stream)];
  Event *of = event;
  if (on->waits == WAITS)
    finish (number (stream), on->done); /* as a GPU that gets on */
  on->wait[on->waits].stream = of->stream;
  on->wait[on->waits++].position = of->position;
  return 0;
}

static long events;
long fake_events (void) { return events; }

int
cuEventCreate (void **event, unsigned flags)
{
  CALL;
  events++;
  *event = calloc (1, sizeof (Event));
  if (!*event)
    return FAILED;
  ((Event *) *event)->context = current ();
  return 0;
}

int cuEventDestroy_v2 (void *event) { ALIVE; events--; free (event); return 0; }

int
cuEventRecord (void *event, void *stream)
{
  CALL;
  void *of = ((Event *) event)->context;
  must_be_same (of, context_of (stream));
  *(Event *) event = (Event) { of, number (stream), streams[number (stream)].enqueued };
  return 0;
}

/* The GPU gets on by one piece of work each time. */
int
cuEventQuery (void *event)
{
  ALIVE;
  plan ();
  if (dead)
    return lost ();
  Event *of = event;
  Stream *on = &streams[of->stream];
  int is_done = on->done >= of->position;
  finish (of->stream, is_done ? on->done : on->done + 1);
  return is_done ? 0 : NOT_READY;
}


int
cuEventSynchronize (void *event)
{
  ALIVE;
  wait_while_stuck ();
  if (dead)
    return lost ();
  finish (((Event *) event)->stream, ((Event *) event)->position);
  return 0;
}

int cuEventElapsedTime (float *ms, void *begin, void *end) { *ms = 1; return 0; }
int cuEventElapsedTime_v2 (float *ms, void *begin, void *end) { *ms = 1; return 0; }

#include "cuda_memory.h"

/* Kernels and graphs of them */

/* CUlaunchConfig begins with the grid, the block, the shared memory and the stream. */
typedef struct { unsigned size[7]; void *stream; } LaunchConfig;

int cuModuleLoadData (void **module, const void *image) { CALL; return give (module); }
int cuModuleUnload (void *module) { ALIVE; free (module); return 0; }
int cuModuleGetFunction (void **function, void *module, const char *name) { CALL; *function = module; return 0; }

int
cuLaunchKernelEx (const LaunchConfig *config, void *f, void **p, void **e)
{
  CALL;
  must_be_same (((Graph *) f)->context, context_of (config->stream));
  return enqueue (config->stream, 0, NULL);
}

int cuGraphCreate (void **graph, unsigned flags) { CALL; return give (graph); }
int cuGraphDestroy (void *graph) { ALIVE; free (graph); return 0; }
int cuGraphAddKernelNode_v2 (void **node, void *g, const void *d, size_t n, const void *p) { CALL; *node = g; return 0; }
int cuGraphKernelNodeSetAttribute (void *node, int attribute, const void *value) { CALL; return 0; }

/* What is captured is no memset. */
int cuGraphGetNodes (void *graph, void **nodes, size_t *count) { CALL; *count = 0; return 0; }

int
cuGraphInstantiateWithFlags (void **executable, void *graph, unsigned long long flags)
{
  CALL;
  if (give (executable))
    return FAILED;
  **(Graph **) executable = *(Graph *) graph;
  return 0;
}

int cuGraphExecKernelNodeSetParams_v2 (void *executable, void *node, const void *parameters) { CALL; return 0; }
/* One that runs is freed once it is done. */
int cuGraphExecDestroy (void *executable) { ALIVE; free (executable); return 0; }

int
cuGraphLaunch (void *executable, void *stream)
{
  CALL;
  Graph *graph = executable;
  must_be_same (graph->context, context_of (stream));
  int failed = enqueue (stream, graph->count, (void *const *) graph->address);
  if (!failed && graph->work)
    graph->work (graph->data, 1);
  return failed;
}
