/* gsttrt.h: run a detection model, or detect objects in frames, without a pipeline.
 *
 * The functions are in the plugin's own library, libgsttrt. gst_init() is not needed.
 *
 * Errors: a function that returns a GstTrtStatus other than GST_TRT_OK has done nothing else, and gst_trt_last_error()
 * says in the same thread what failed and what to do. A session stays usable after any error. NULL, sizes that do not
 * fit, and sessions that are closed already are errors too. A panic inside is caught and is GST_TRT_PANIC.
 *
 * Threads: any function may be called from any thread. A session does one thing at a time: a second thread waits for the
 * first. To run in parallel, open several sessions. A session that is closed while it runs goes once it is done.
 */
#ifndef GSTTRT_H
#define GSTTRT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  GST_TRT_OK = 0,
  GST_TRT_SETTINGS = 1,    /* an option makes no sense, or does not suit the model */
  GST_TRT_NOT_FOUND = 2,   /* a file is not there */
  GST_TRT_READ = 3,        /* a file cannot be read */
  GST_TRT_MODEL = 4,       /* a model file is broken, or not one that can be used */
  GST_TRT_LIBRARY = 5,     /* a library that is needed is missing or does not start */
  GST_TRT_RUN = 6,         /* the model failed to run */
  GST_TRT_WRONG_TYPE = 7,  /* an argument is NULL, of the wrong size, or not what the model takes */
  GST_TRT_NEGOTIATION = 8, /* no tensor can be made of such a frame */
  GST_TRT_PANIC = 9        /* a bug in this library */
} GstTrtStatus;

typedef enum {
  GST_TRT_F32 = 0,
  GST_TRT_F16 = 1,
  GST_TRT_U8 = 2,
  GST_TRT_I8 = 3,
  GST_TRT_I32 = 4,
  GST_TRT_I64 = 5,
  GST_TRT_BOOL = 6 /* one byte, 0 or 1 */
} GstTrtType;

#define GST_TRT_MAX_RANK 8

/* An input or output of a model: a contiguous array, the last dimension innermost. */
typedef struct {
  const char *name; /* stays until the session is closed */
  int32_t type;     /* GstTrtType */
  uint32_t rank;
  int64_t dims[GST_TRT_MAX_RANK];
  size_t bytes; /* of the whole array */
} GstTrtTensor;

/* How sample values become colours, for YUV and gray formats; 0 is BT.601 in limited range, chroma between samples. */
enum {
  GST_TRT_BT709 = 1,
  GST_TRT_BT2020 = 2,
  GST_TRT_FULL_RANGE = 4,
  GST_TRT_CHROMA_LEFT = 8, /* as H.264 has it by default; these two count with the option chroma-sampling=sited */
  GST_TRT_CHROMA_TOP = 16
};

#define GST_TRT_MAX_PLANES 3

/* A frame in host memory. */
typedef struct {
  const char *format; /* as GStreamer names it: NV12, P010_10LE, I420, RGB, BGR, RGBA, BGRA, RGBx, BGRx, GRAY8 */
  uint32_t width;     /* in pixels */
  uint32_t height;
  uint32_t color; /* of the flags above */
  const void *planes[GST_TRT_MAX_PLANES];
  size_t strides[GST_TRT_MAX_PLANES]; /* bytes from one row to the next */
  size_t bytes[GST_TRT_MAX_PLANES];   /* that may be read from each plane on */
} GstTrtFrame;

/* An object in a frame. */
typedef struct {
  const char *label; /* stays until the session is closed */
  uint32_t class_id;
  float confidence; /* 0..1 */
  float x, y, width, height; /* in pixels of the frame */
} GstTrtObject;

typedef struct GstTrtSession GstTrtSession;

/* What failed in the last call of this thread that failed; "" if none did. Stays until the next that fails. */
const char *gst_trt_last_error (void);

/* Loads an ONNX file or a TensorRT engine. Engines are programs: only for files you trust. TensorRT builds an engine of
 * an ONNX file that it sees for the first time, which takes seconds to minutes.
 *
 * options: texts like "backend=cpu" or "score-threshold=0.5" and a NULL at the end, or NULL. Names, ranges and defaults are
 * those of the properties of trtinfer and trtnms, save that cuda-device-id is 0 by default. */
GstTrtStatus gst_trt_session_open (const char *model, const char *const *options, GstTrtSession **session);

/* NULL and sessions that are closed already are no harm. */
void gst_trt_session_close (GstTrtSession *session);

/* "tensorrt" or "cpu"; NULL on errors. */
const char *gst_trt_session_backend (GstTrtSession *session);

/* Why backend=auto came to the CPU; NULL where it did not, and on errors. Stays until the session is closed. */
const char *gst_trt_session_reason (GstTrtSession *session);

/* The tensor that the model takes: one picture. Inputs beside it, such as its size, the session fills. */
GstTrtStatus gst_trt_session_input (GstTrtSession *session, GstTrtTensor *input);

/* 0 on errors. */
size_t gst_trt_session_output_count (GstTrtSession *session);

/* Dimensions that the file leaves open are those of a first run on zeros. */
GstTrtStatus gst_trt_session_output (GstTrtSession *session, size_t index, GstTrtTensor *output);

/* Runs the model on the bytes of its input and writes all outputs, in their order. count is gst_trt_session_output_count()
 * and sizes are the outputs' bytes. Memory may lie at any address. Nothing is written on errors. */
GstTrtStatus gst_trt_session_run (GstTrtSession *session, const void *input, size_t bytes, void *const *outputs,
                                  const size_t *output_bytes, size_t count);

/* Finds the objects in a frame, the best confidence first: what trtpreprocess ! trtinfer ! trtnms find. found is set to
 * their number, at most the option max-detections (300), and the first `capacity` of them are written. */
GstTrtStatus gst_trt_session_detect (GstTrtSession *session, const GstTrtFrame *frame, GstTrtObject *objects,
                                     size_t capacity, size_t *found);

/* The same for a frame in GPU memory: planes are device pointers, read where they are, behind all that is queued on `stream`
 * so far. It has been read when this returns. GST_TRT_LIBRARY where the model does not run on a GPU. */
GstTrtStatus gst_trt_session_detect_device (GstTrtSession *session, const GstTrtFrame *frame, void *stream,
                                            GstTrtObject *objects, size_t capacity, size_t *found);

/* The keypoints of an object of the last frame that this session detected in, objects counted from 0 as gst_trt_session_detect
 * writes them. found is set to their number, 0 where the model finds none; of the first `capacity` x, y and visibility are
 * written, 3 floats each: pixels of the frame and 0..1, or -1 where the model does not tell visibility. */
GstTrtStatus gst_trt_session_keypoints (GstTrtSession *session, size_t object, float *points, size_t capacity,
                                        size_t *found);

/* How many GPUs there are. Where CUDA cannot be used this is GST_TRT_LIBRARY, the number 0, and gst_trt_last_error() why. */
GstTrtStatus gst_trt_gpu_count (uint32_t *count);

/* Input and outputs of its own that a session runs on again and again: on the GPU where the model runs there, else on the
 * host. Copies wait for the run before them; run_buffers returns when the run is queued. */
GstTrtStatus gst_trt_session_copy_input (GstTrtSession *session, const void *input, size_t bytes);
GstTrtStatus gst_trt_session_run_buffers (GstTrtSession *session);
GstTrtStatus gst_trt_session_copy_output (GstTrtSession *session, size_t index, void *output, size_t bytes);

/* Where they lie in the GPU's memory, until the session is closed: what TensorRT reads and writes. GST_TRT_LIBRARY where
 * the model does not run on a GPU. */
GstTrtStatus gst_trt_session_buffers (GstTrtSession *session, void **input, void **outputs, size_t count);

/* Runs the model on tensors in GPU memory that are the caller's, none of them copied: behind all that is queued on `stream`
 * so far, and before all that is queued there later. Returns when it is queued; the memory must stay until it is done. Each
 * tensor begins at a multiple of 256 bytes. Pointers are of the GPU's primary context, as those of cudaMalloc and PyTorch;
 * `stream` is a CUstream or cudaStream_t of it, NULL the default one. */
GstTrtStatus gst_trt_session_run_device (GstTrtSession *session, void *input, void *const *outputs, size_t count,
                                         void *stream);

/* Tensors of other frameworks, by DLPack (dmlc.github.io/dlpack). Nothing is copied but a tensor on the host for a model on a
 * GPU.
 *
 * `stream` is where the caller works on tensors that are on a GPU, as CUDA names it: NULL is the default one. They are written
 * behind what is queued there so far, and may be read by what is queued there later. When a deleter is called, memory of a tensor
 * is used again only behind what is queued on `stream` by then, so the tensor may be deleted while work that reads it is queued.
 * The stream must stay until then. Where it is not known, or does not stay, give GST_TRT_STREAM_UNKNOWN: the host waits then, for
 * the tensors here, and for all work on the GPU in the deleter. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

#define GST_TRT_STREAM_UNKNOWN ((void *) (intptr_t) -1)

/* Runs the model on a tensor, which is consumed, whatever the outcome. All outputs are the caller's, who may write them, to be
 * freed by their deleters; they stay after the session is closed. */
GstTrtStatus gst_trt_session_run_dlpack (GstTrtSession *session, struct DLManagedTensor *input, void *stream,
                                         struct DLManagedTensor **outputs, size_t count);

/* A tensor that rides on a frame: behind trtpreprocess the model's input, behind trtinfer its outputs, for which this waits
 * where a batch is still being filled. It is to be freed by its deleter. The elements use the same memory, so it must not be
 * written, which this structure cannot say: on the host it is a copy therefore. On a GPU nothing is copied. */
struct _GstBuffer;
GstTrtStatus gst_trt_buffer_tensor (const struct _GstBuffer *buffer, size_t index, void *stream,
                                    struct DLManagedTensor **tensor);

/* The same in the structure of DLPack 1.0 and later, with the flag that it must not be written. Nothing is copied. */
GstTrtStatus gst_trt_buffer_tensor_versioned (const struct _GstBuffer *buffer, size_t index, void *stream,
                                              struct DLManagedTensorVersioned **tensor);

#ifdef __cplusplus
}
#endif

#endif
