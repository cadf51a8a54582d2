{{- /* SPDX-License-Identifier: MPL-2.0 */ -}}
{{- /* Names, labels and the image. */ -}}

{{- define "gst-trt.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- /* 52 characters at most: Kubernetes adds a hash to the name of a StatefulSet, and a label has 63. */ -}}
{{- define "gst-trt.fullname" -}}
{{- $name := include "gst-trt.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* The Service that gives each pod a name of its own. */ -}}
{{- define "gst-trt.headless" -}}
{{- include "gst-trt.fullname" . }}-pods
{{- end -}}

{{- define "gst-trt.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gst-trt.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gst-trt.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "gst-trt.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Lines of metadata that all objects have: (dict "root" $ "name" …, "labels" …, "annotations" …). */ -}}
{{- define "gst-trt.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "gst-trt.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "gst-trt.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "gst-trt.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "gst-trt.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "gst-trt.tokenSecret" -}}
{{- .Values.http.token.secret | default (printf "%s-http" (include "gst-trt.fullname" .)) -}}
{{- end -}}

{{- /* The ports that the service has: for Services, the pods and the NetworkPolicy. */ -}}
{{- define "gst-trt.ports" -}}
- {name: http, port: {{ .Values.http.port }}, protocol: TCP}
{{- if .Values.rtsp.enabled }}
- {name: rtsp, port: {{ .Values.rtsp.port }}, protocol: TCP}
{{- end }}
{{- if .Values.webrtc.enabled }}
- {name: webrtc, port: {{ .Values.webrtc.port }}, protocol: UDP}
{{- end }}
{{- end -}}
