/* SPDX-License-Identifier: MPL-2.0 */
/* NVIDIA's management library for two GPUs, the second of which tells little. No GPU is needed. */

#include <stdint.h>
#include <stdio.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3 };

typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { uint64_t total, free, used; } Memory;

static int devices[2];

static int first(const void *device) { return device == &devices[0]; }

int nvmlInit_v2(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &devices[index]; return SUCCESS; }

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
  snprintf(name, length, first(device) ? "Made \"up\"" : "Quiet");
  return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
  snprintf(uuid, length, "GPU-%d", first(device) ? 7 : 8);
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, Utilization *found) {
  *found = (Utilization) {42, 17};
  return first(device) ? SUCCESS : NOT_SUPPORTED;
}

static int sampled(void *device, unsigned value, unsigned *to, unsigned *period) {
  *to = value;
  *period = 1000;
  return first(device) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetDecoderUtilization(void *device, unsigned *value, unsigned *period) { return sampled(device, 80, value, period); }

int nvmlDeviceGetEncoderUtilization(void *device, unsigned *value, unsigned *period) { return sampled(device, 5, value, period); }

int nvmlDeviceGetMemoryInfo(void *device, Memory *found) {
  (void)device;
  *found = (Memory) {80000000000u, 60000000000u, 20000000000u};
  return SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius) {
  *celsius = 61;
  return sensor == 0 && first(device) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  *milliwatts = 312500;
  return first(device) ? SUCCESS : NOT_SUPPORTED;
}
