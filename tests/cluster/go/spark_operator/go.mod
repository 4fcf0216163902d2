module headwater/spark_operator

go 1.24.0

require github.com/kubeflow/spark-operator/v2 v2.4.0
