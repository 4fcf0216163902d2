{{- /* The folders that executors have as their driver has them: extra volumes that are not of one pod, or of one node. */ -}}
{{- define "headwater.sinkSharedDirs" -}}
{{- $shared := list -}}
{{- range $mount := .Values.sink.extraVolumeMounts }}
{{- range $volume := $.Values.sink.extraVolumes }}
{{- if and (eq $volume.name $mount.name) (not (or $volume.emptyDir $volume.hostPath $volume.configMap $volume.secret)) }}
{{- $shared = append $shared $mount.mountPath }}
{{- end }}
{{- end }}
{{- end -}}
{{- dict "dirs" $shared | toJson -}}
{{- end -}}

{{- /* What is told to every job's session of its executors; the pod's own name and address come by its environment. */ -}}
{{- define "headwater.sinkExecutorSettings" -}}
{{- $executors := .Values.sink.executors -}}
shuffle_partitions: {{ max 2 (mul $executors.instances $executors.cores) }}
shared_dirs: {{ (include "headwater.sinkSharedDirs" . | fromJson).dirs | toJson }}
{{- if eq .Values.sink.kind "SparkApplication" }}
is_submitted: true
{{- else }}
master: k8s://https://kubernetes.default.svc
executors:
  instances: {{ $executors.instances }}
  cores: {{ $executors.cores }}
  memory: {{ $executors.memory }}
  memory_overhead: {{ $executors.memoryOverhead }}
  {{- with ($executors.resources.requests | default dict).cpu }}
  cpu_request: {{ . | toString | quote }}
  {{- end }}
  {{- with ($executors.resources.limits | default dict).cpu }}
  cpu_limit: {{ . | toString | quote }}
  {{- end }}
  image: {{ include "headwater.image" (dict "root" . "image" "spark") }}
  image_pull_policy: {{ .Values.image.pullPolicy }}
  pod_template_file: /etc/headwater/settings/executor.yaml
  namespace: {{ .Release.Namespace }}
{{- end }}
{{- end -}}

{{- /* The rest of a driver's settings: what Kubernetes knows of its pod. */ -}}
{{- define "headwater.sinkExecutorEnv" -}}
- name: HEADWATER_SESSION__EXECUTORS__JOB
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['headwater.dev/sink-job']"}}
- name: HEADWATER_SESSION__EXECUTORS__DRIVER_POD
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: HEADWATER_SESSION__EXECUTORS__DRIVER_ADDRESS
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end -}}

{{- define "headwater.sinkPorts" -}}
- {name: driver, containerPort: 7078}
- {name: blocks, containerPort: 7079}
{{- end -}}

{{- /* Of a job's pods, the executors' too. */ -}}
{{- define "headwater.sinkVolumeMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- with include "headwater.kafkaVolumeMounts" (dict "root" . "role" "sink") | trim }}
{{ . }}
{{- end }}
{{- with .Values.sink.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "headwater.sinkVolumes" -}}
- name: tmp
  emptyDir: {}
{{- with include "headwater.kafkaVolumes" (dict "root" . "role" "sink") | trim }}
{{ . }}
{{- end }}
{{- with .Values.sink.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The pod that Spark makes each executor from; it puts in name, owner, image, CPU, memory, arguments and environment. */ -}}
{{- define "headwater.sinkExecutorPod" -}}
metadata:
  labels: {app.kubernetes.io/name: headwater, app.kubernetes.io/component: sink, headwater.dev/part-of: mesh, headwater.dev/role: sink-executor}
  {{- with .Values.podAnnotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: headwater
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 10
  securityContext: {{- include "headwater.podSecurity" . | nindent 4 }}
  {{- include "headwater.placement" . | nindent 2 }}
  {{- with include "headwater.affinity" (dict "root" .) }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
    - name: {{ ternary "spark-kubernetes-executor" "executor" (eq .Values.sink.kind "SparkApplication") }}
      workingDir: /tmp  # where it keeps the jars of its session
      {{- $env := dict }}
      {{- range $name, $ref := .Values.sink.secretEnv }}
      {{- if not (hasPrefix "HEADWATER_" $name) }}{{ $_ := set $env $name $ref }}{{ end }}
      {{- end }}
      {{- with $env }}
      env:
        {{- range $name, $ref := . }}
        - name: {{ $name }}
          valueFrom: {secretKeyRef: {name: {{ $ref.name }}, key: {{ $ref.key }}}}
        {{- end }}
      {{- end }}
      resources: {{- toYaml .Values.sink.executors.resources | nindent 8 }}
      securityContext: {{- include "headwater.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: spark-local-dir-1, mountPath: /var/data/spark}  # by its name Spark takes it for shuffles and spills
        {{- include "headwater.sinkVolumeMounts" . | nindent 8 }}
  volumes:
    - name: spark-local-dir-1
      emptyDir: {}
    {{- include "headwater.sinkVolumes" . | nindent 4 }}
{{- end -}}

{{- /* A job's own pod: with executors their driver. */ -}}
{{- define "headwater.sinkPod" -}}
{{- $hasExecutors := gt (.root.Values.sink.executors.instances | int) 0 -}}
{{- $isSubmitted := eq .root.Values.sink.kind "SparkApplication" -}}
{{- with .root -}}
metadata:
  labels: {app.kubernetes.io/name: headwater, headwater.dev/part-of: mesh, headwater.dev/role: sink}
  annotations:
    headwater.dev/settings: {{ $.settings | sha256sum | trunc 16 | quote }}
    {{- with .Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{- end }}
spec:
  serviceAccountName: {{ ternary "headwater-sink" "headwater" $hasExecutors }}
  automountServiceAccountToken: {{ $hasExecutors }}
  enableServiceLinks: false
  # A batch that is cut off comes again; the JVM outlives its driver by some.
  terminationGracePeriodSeconds: 30
  securityContext: {{- include "headwater.podSecurity" . | nindent 4 }}
  {{- include "headwater.placement" . | nindent 2 }}
  {{- with include "headwater.affinity" (dict "root" .) }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if .Values.development }}
  {{- include "headwater.codeCopy" (dict "root" . "image" "spark") | nindent 2 }}
  {{- end }}
  containers:
    - name: {{ ternary "spark-kubernetes-driver" "sink" $isSubmitted }}
      image: {{ include "headwater.image" (dict "root" . "image" "spark") }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      {{- if .Values.development }}
      {{- include "headwater.codeCommand" (dict "root" . "image" "spark") | nindent 6 }}
      {{- end }}
      {{- if not $isSubmitted }}
      args: [--settings, /etc/headwater/settings/settings.yaml]
      {{- end }}
      {{- $env := include "headwater.secretEnv" (dict "root" . "role" "sink" "secretEnv" .Values.sink.secretEnv) | trim }}
      env:
        # Of this pod alone: faults that outlive a restart of its container end with it.
        - {name: HEADWATER_FAULTS_FILE, value: /tmp/faults.json}
        {{- if .Values.sink.settings.state_store }}
        - name: HEADWATER_STATE_STORE__JOB
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['headwater.dev/sink-job']"}}
        {{- end }}
        {{- with $env }}{{- . | nindent 8 }}{{- end }}
        {{- if and $hasExecutors (not $isSubmitted) }}{{- include "headwater.sinkExecutorEnv" . | nindent 8 }}{{- end }}
      ports:
        - {name: http, containerPort: 8080}
        {{- if and $hasExecutors (not $isSubmitted) }}{{- include "headwater.sinkPorts" . | nindent 8 }}{{- end }}
      {{- include "headwater.probes" (dict "startupFailures" 150 "development" .Values.development) | nindent 6 }}
      resources: {{- toYaml .Values.sink.resources | nindent 8 }}
      securityContext: {{- include "headwater.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: settings, mountPath: /etc/headwater/settings, readOnly: true}
        - {name: tenants, mountPath: /etc/headwater/tenants, readOnly: true}
        - {name: state, mountPath: /var/lib/headwater}
        {{- if .Values.development }}
        - {name: code, mountPath: /app}
        {{- end }}
        {{- if $isSubmitted }}
        - {name: spark-local-dir-1, mountPath: /var/data/spark}
        {{- end }}
        {{- include "headwater.sinkVolumeMounts" . | nindent 8 }}
  volumes:
    - name: settings
      configMap: {name: headwater-sink}
    - name: tenants  # tenant_operator's
    {{- if .Values.development }}
    - name: code
      emptyDir: {sizeLimit: 256Mi}
    {{- end }}
    {{- if not .Values.sink.stateSize }}
    - name: state  # what is kept of it is in the object store
      emptyDir: {}
    {{- else if $isSubmitted }}
    - name: state    # tenant_operator's, a claim
    {{- end }}
    {{- if $isSubmitted }}
    - name: spark-local-dir-1
      emptyDir: {}
    {{- end }}
    {{- include "headwater.sinkVolumes" . | nindent 4 }}
{{- end -}}
{{- end -}}

{{- /* A job as the Spark Operator runs it: root, driver and executor, which are the pods. */ -}}
{{- define "headwater.sparkApplication" -}}
{{- $driver := .root.Values.sink.resources -}}
{{- $session := .root.Values.sink.settings.session | default dict -}}
{{- $jars := "/opt/headwater/jars/*" -}}
{{- with $session.more_jars_dir }}{{ $jars = printf "%s:%s/*" $jars . }}{{ end -}}
{{- with .root.Values.sink.executors -}}
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
# The Spark Operator has the driver and executors bear all of these, so that the role of each stands in its pod's template.
metadata: {labels: {app.kubernetes.io/name: headwater, headwater.dev/part-of: mesh}}
spec:
  type: Python
  pythonVersion: "3"
  mode: cluster
  sparkVersion: {{ include "headwater.sparkVersion" . }}
  image: {{ include "headwater.image" (dict "root" $.root "image" "spark") }}
  imagePullPolicy: {{ $.root.Values.image.pullPolicy }}
  mainApplicationFile: local:///app/spark/jobs/sink_job.py
  arguments: [--settings, /etc/headwater/settings/settings.yaml]
  restartPolicy: {type: Always, onFailureRetryInterval: 10, onSubmissionFailureRetryInterval: 30}
  sparkConf:
    spark.driver.extraClassPath: {{ $jars }}
    spark.executor.extraClassPath: {{ $jars }}
    spark.blockManager.port: "7079"  # executors' own, which is any port without this, and the NetworkPolicies name it
  driver:
    cores: 1
    coreRequest: {{ ($driver.requests | default dict).cpu | default 1 | toString | quote }}
    {{- with ($driver.limits | default dict).cpu }}
    coreLimit: {{ . | toString | quote }}
    {{- end }}
    memory: {{ $session.driver_memory | default "896m" }}
    memoryOverhead: {{ $.root.Values.sink.driverMemoryOverhead }}
    javaOptions: "-XX:+UseParallelGC -Dlog4j2.configurationFile=/app/spark/session/log4j2.properties"
    serviceAccount: headwater-sink
    template: {{- toYaml $.driver | nindent 6 }}
  executor:
    instances: {{ .instances }}
    cores: {{ .cores }}
    coreRequest: {{ (.resources.requests | default dict).cpu | default .cores | toString | quote }}
    {{- with (.resources.limits | default dict).cpu }}
    coreLimit: {{ . | toString | quote }}
    {{- end }}
    memory: {{ .memory }}
    memoryOverhead: {{ .memoryOverhead }}
    serviceAccount: headwater
    template: {{- toYaml $.executor | nindent 6 }}
{{- end -}}
{{- end -}}

{{- /* Of the image: requirements/spark.txt. */ -}}
{{- define "headwater.sparkVersion" -}}4.1.3{{- end -}}

{{- /* The volume of a job's state. */ -}}
{{- define "headwater.sinkClaim" -}}
accessModes: [ReadWriteOnce]
{{- with .Values.sink.storageClassName }}
storageClassName: {{ . }}
{{- end }}
resources: {requests: {storage: {{ .Values.sink.stateSize }}}}
{{- end -}}
