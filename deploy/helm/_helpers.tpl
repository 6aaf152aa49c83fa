{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{/* The image of the operator and of the pods that it creates. */}}
{{- define "ferrite-operator.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
