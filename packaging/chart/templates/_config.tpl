{{- /* SPDX-License-Identifier: MPL-2.0 */ -}}
{{- /* The configuration of `gst-trt serve`, in TOML. */ -}}

{{- /* A text. What JSON writes is a text of TOML too, but for control characters from DEL on, which YAML does not carry either. */ -}}
{{- define "gst-trt.toml.text" -}}
{{- $text := toRawJson . -}}
{{- if regexMatch "[\\x7f-\\x{9f}]" $text -}}
{{- range $code := untilStep 127 160 1 -}}
{{- $text = replace (printf "%c" $code) (printf "\\u%04x" $code) $text -}}
{{- end -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{- define "gst-trt.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ include "gst-trt.toml.text" . }}{{ end -}}
{{- end -}}

{{- /* A value on one line: (dict "value" … "path" "sources[0].record"). Helm reads all numbers of YAML as floats. */ -}}
{{- define "gst-trt.toml.value" -}}
{{- $value := .value -}}
{{- $path := .path -}}
{{- if kindIs "string" $value -}}
{{- include "gst-trt.toml.text" $value -}}
{{- else if kindIs "bool" $value -}}
{{- $value -}}
{{- else if kindIs "float64" $value -}}
{{- if and (eq (floor $value) $value) (lt $value 9007199254740992.0) (gt $value -9007199254740992.0) -}}
{{- printf "%.0f" $value -}}
{{- else -}}
{{- toJson $value -}}
{{- end -}}
{{- else if or (kindIs "int" $value) (kindIs "int64" $value) -}}
{{- $value -}}
{{- else if kindIs "slice" $value -}}
{{- $items := list -}}
{{- range $index, $item := $value -}}
{{- $items = append $items (include "gst-trt.toml.value" (dict "value" $item "path" (printf "%s[%d]" $path $index))) -}}
{{- end -}}
[{{ join ", " $items }}]
{{- else if kindIs "map" $value -}}
{{- $items := list -}}
{{- range $key, $item := $value -}}
{{- $text := include "gst-trt.toml.value" (dict "value" $item "path" (printf "%s.%s" $path $key)) -}}
{{- $items = append $items (printf "%s = %s" (include "gst-trt.toml.key" $key) $text) -}}
{{- end -}}
{ {{- join ", " $items -}} }
{{- else -}}
{{- fail (printf "\n\n%s has no value. Give it one, or leave the key out.\n" $path) -}}
{{- end -}}
{{- end -}}

{{- /* Refuses what would make a configuration that no replica starts with, or that means something else than it says. */ -}}
{{- define "gst-trt.checkValues" -}}
{{- $places := dict -}}
{{- range $index, $source := .Values.sources -}}
{{- if hasKey $places $source.name -}}
{{- $first := get $places $source.name -}}
{{- fail (printf "\n\nsources: %q is there twice, as sources[%d] and as sources[%d]. Each source runs once: remove one of them, or give it another name.\n" $source.name (int $first) $index) -}}
{{- end -}}
{{- $_ := set $places $source.name $index -}}
{{- end -}}
{{- $own := dict "http" "http" "rtsp" "rtsp" "webrtc" "webrtc" -}}
{{- range $table, $value := $own -}}
{{- if regexMatch (printf "(?m)^[ \\t]*\\[[ \\t]*[\"']?%s[\"']?[ \\t]*\\]" $table) $.Values.config -}}
{{- fail (printf "\n\nconfig: [%s] is written by the chart. Use the value %s instead.\n" $table $value) -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "(?m)^[ \\t]*\\[\\[[ \\t]*[\"']?source[\"']?[ \\t]*\\]\\]" .Values.config -}}
{{- fail "\n\nconfig: [[source]] is written by the chart. Put sources into the value sources instead.\n" -}}
{{- end -}}
{{- if regexMatch "(?m)^[ \\t]*[\"']?shard[\"']?[ \\t]*=" .Values.config -}}
{{- fail "\n\nconfig: shard is written by the chart, from the value replicas. Remove it.\n" -}}
{{- end -}}
{{- range $name, $text := merge (dict "the value config" .Values.config) .Values.files -}}
{{- if regexMatch "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x{9f}\\x{2028}\\x{2029}]" $text -}}
{{- fail (printf "\n\n%s: it has a control character or a line break of Unicode, which is lost on the way. Write it as \\u2028, or remove it.\n" $name) -}}
{{- end -}}
{{- end -}}
{{- if hasKey .Values.files "config.toml" -}}
{{- fail "\n\nfiles: config.toml is written by the chart. Use the value config instead.\n" -}}
{{- end -}}
{{- if eq .Values.configKind "ConfigMap" -}}
{{- $texts := merge (dict "the value config" .Values.config) .Values.files -}}
{{- range $source := .Values.sources -}}
{{- /* In a text of TOML a quote ends the address. In the value it is a part of it. */ -}}
{{- $_ := set $texts (printf "the address of the source %s" $source.name) (regexReplaceAll "[\"']" (toString $source.address) "_") -}}
{{- end -}}
{{- $user := "://[^/@\\s\"']*:[^/@\\s\"']+@" -}}
{{- $named := "(?i)[?&;/](pwd|pw|key|auth|sig|(login)?pas\\w*|[\\w-]*(passw\\w*|token|secret|signature|api_?key))=[^&;\\s\"'$]" -}}
{{- range $name, $text := $texts -}}
{{- range concat (regexFindAll $user $text -1) (regexFindAll $named $text -1) -}}
{{- /* The user alone may be a variable. */ -}}
{{- if not (contains "${" (regexReplaceAll "^://[^:]*:" . "")) -}}
{{- fail (printf "\n\n%s: it has a password or a token, and all who may read ConfigMaps see it. Write ${NAME} for it and put it into a Secret of envFromSecrets, use password-file with credentials.secret, or set configKind to Secret.\n" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.rtsp.enabled (not .Values.rtsp.password.secret) -}}
{{- fail "\n\nrtsp: all who reach the pods could watch. Set rtsp.password.secret to the name of a Secret with the password.\n" -}}
{{- end -}}
{{- end -}}

{{- /* Tables of servers. They count from a start on, so the pods are started again when this text changes. */ -}}
{{- define "gst-trt.servers" -}}
[http]
listen = "0.0.0.0:{{ .Values.http.port }}"
token-file = "/run/secrets/gst-trt/http/token"
{{- with .Values.rtsp }}
{{- if .enabled }}

[rtsp]
listen = "0.0.0.0:{{ .port }}"
user = {{ include "gst-trt.toml.text" .user }}
password-file = "/run/secrets/gst-trt/rtsp/password"
sei = {{ .sei }}
{{- end }}
{{- end }}
{{- with .Values.webrtc }}
{{- if .enabled }}

[webrtc]
listen = "0.0.0.0:{{ .port }}"
addresses = {{ include "gst-trt.toml.value" (dict "value" .addresses "path" "webrtc.addresses") }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "gst-trt.config" -}}
{{- include "gst-trt.checkValues" . -}}
# Written by the Helm chart {{ .Chart.Name }}, release {{ .Release.Name }}. Change its values, not this.
shard = "${POD_INDEX}/{{ .Values.replicas }}"
{{- if and .Values.gpu.enabled (gt (int .Values.gpu.count) 1) (not (regexMatch "(?m)^[ \\t]*[\"']?gpus[\"']?[ \\t]*=" .Values.config)) }}
gpus = "all"
{{- end }}
{{- range $name, $text := .Values.files }}
# {{ $name }}: {{ sha256sum $text }}
{{- end }}
{{ with .Values.config }}
{{ trim . }}
{{ end }}
{{ include "gst-trt.servers" . }}
{{- range $index, $source := .Values.sources }}

[[source]]
name = {{ include "gst-trt.toml.text" $source.name }}
{{- range $key, $value := omit $source "name" }}
{{ include "gst-trt.toml.key" $key }} = {{ include "gst-trt.toml.value" (dict "value" $value "path" (printf "sources[%d].%s" $index $key)) }}
{{- end }}
{{- end }}
{{ end -}}
