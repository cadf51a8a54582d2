/* SPDX-License-Identifier: MPL-2.0 */
/* Detects objects in a picture, without a pipeline: session MODEL PICTURE.ppm
 *
 * Any picture becomes a PPM by: gst-launch-1.0 filesrc location=a.jpg ! decodebin ! videoconvert ! pnmenc ! filesink location=a.ppm
 *
 *   cc session.c $(pkg-config --cflags --libs gsttrt-1.0) -o session */
#include <gsttrt.h>
#include <stdio.h>
#include <stdlib.h>

static int
failed (void)
{
  fprintf (stderr, "Error: %s\n", gst_trt_last_error ());
  return 1;
}

static int
detect (const char *model, const void *pixels, size_t width, size_t height)
{
  /* README: begin */
  const char *options[] = { "score-threshold=0.5", NULL };
  GstTrtSession *session;
  if (gst_trt_session_open (model, options, &session) != GST_TRT_OK)
    return failed ();

  GstTrtFrame frame = { .struct_size = sizeof frame, .format = "RGB", .width = width, .height = height,
    .planes = { pixels }, .strides = { width * 3 }, .bytes = { width * 3 * height } };
  GstTrtResults *results;
  if (gst_trt_session_detect (session, &frame, &results) != GST_TRT_OK) {
    gst_trt_session_close (session);
    return failed ();
  }
  for (size_t i = 0; i < gst_trt_results_count (results); i++) {
    float box[4];
    gst_trt_results_box (results, i, &box);
    printf ("%s %.2f (%.1f, %.1f, %.1f, %.1f)\n", gst_trt_results_label (results, i),
        gst_trt_results_confidence (results, i), box[0], box[1], box[2], box[3]);
  }
  gst_trt_results_free (results);
  gst_trt_session_close (session);
  /* README: end */
  return 0;
}

/* The next number of the picture's header, after blanks and comments; 0 if there is none. */
static unsigned
number (FILE *file)
{
  char hash[2];
  unsigned value;
  while (fscanf (file, " %1[#]%*[^\n]", hash) == 1);
  return fscanf (file, "%u", &value) == 1 && value <= 16384 ? value : 0;
}

int
main (int argc, char **argv)
{
  if (argc != 3) {
    fprintf (stderr, "Usage: session MODEL PICTURE.ppm\n");
    return 1;
  }
  FILE *file = fopen (argv[2], "rb");
  if (!file) {
    perror (argv[2]);
    return 1;
  }
  int is_ppm = fgetc (file) == 'P' && fgetc (file) == '6';
  size_t width = number (file), height = number (file), maximum = number (file), bytes = width * height * 3;
  if (!is_ppm || bytes == 0 || maximum != 255 || fgetc (file) == EOF) {
    fprintf (stderr, "Error: %s is no binary PPM picture (P6) with 8 bits a sample\n", argv[2]);
    fclose (file);
    return 1;
  }
  void *pixels = malloc (bytes);
  int is_whole = pixels && fread (pixels, 1, bytes, file) == bytes;
  fclose (file);
  if (!is_whole)
    fprintf (stderr, "Error: %s ends too early\n", argv[2]);
  int status = is_whole ? detect (argv[1], pixels, width, height) : 1;
  free (pixels);
  return status;
}
