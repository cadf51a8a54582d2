/* Detects objects in a picture, without a pipeline: session MODEL PICTURE.ppm
 *
 *   cc session.c -I include -L target/release -lgsttrt -Wl,-rpath,$PWD/target/release -o session */
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

  GstTrtFrame frame = { .format = "RGB", .width = width, .height = height,
    .planes = { pixels }, .strides = { width * 3 }, .bytes = { width * 3 * height } };
  GstTrtObject objects[300];
  size_t found;
  if (gst_trt_session_detect (session, &frame, objects, 300, &found) != GST_TRT_OK)
    return failed ();
  for (size_t i = 0; i < found; i++)
    printf ("%s %.2f (%.1f, %.1f, %.1f, %.1f)\n", objects[i].label, objects[i].confidence,
        objects[i].x, objects[i].y, objects[i].width, objects[i].height);
  gst_trt_session_close (session);
  /* README: end */
  return 0;
}

int
main (int argc, char **argv)
{
  unsigned width, height;
  FILE *file = argc == 3 ? fopen (argv[2], "rb") : NULL;
  if (!file || fscanf (file, "P6 %u %u 255", &width, &height) != 2 || fgetc (file) == EOF) {
    fprintf (stderr, "Usage: session MODEL PICTURE.ppm, the picture as \"P6 width height 255\" and RGB\n");
    return 1;
  }
  size_t bytes = (size_t) width * height * 3;
  void *pixels = malloc (bytes);
  if (!pixels || fread (pixels, 1, bytes, file) != bytes) {
    fprintf (stderr, "Error: %s ends too early\n", argv[2]);
    return 1;
  }
  fclose (file);
  int status = detect (argv[1], pixels, width, height);
  free (pixels);
  return status;
}
