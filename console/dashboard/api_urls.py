"""Addresses of the REST API, below /api/v1/."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from console.accounts import api_tokens_api as api_tokens
from console.accounts.audit_api import AuditFile, AuditList
from console.dashboard import api as dashboard
from console.dashboard import job_api, tokens
from console.dumps import api as dumps
from console.dumps.bundles_api import BundleDetail, BundleList, BundleRankStacks
from console.evidence import api as evidence
from console.fleet import api as fleet
from console.incidents import api as incidents
from console.incidents.acts import api as acts
from console.incidents.lists import api as lists
from console.incidents.lists.scorecard_api import Scorecard
from console.incidents.pictures import api as pictures_api
from console.incidents.pictures import layers_api, past_api
from console.incidents.pictures.why_not_api import IncidentWhyNot
from console.network import api as network
from console.network import epochs_api as epochs
from console.questions import api as questions
from console.silences import api as silences
from console.stages import api as stages
from console.tickets import api as tickets

urlpatterns = [
    path("session", dashboard.Session.as_view()),
    path("now", dashboard.Now.as_view()),
    path("incidents", lists.IncidentList.as_view()),
    path("incidents/acts", acts.ActOnMany.as_view()),
    path("incidents/<int:number>", incidents.IncidentDetail.as_view()),
    path("incidents/<int:number>/diagnoses/<int:revision>", incidents.IncidentDiagnosis.as_view()),
    path("incidents/<int:number>/grid", pictures_api.IncidentGrid.as_view()),
    path("incidents/<int:number>/grid/at", past_api.IncidentGridAt.as_view()),
    path("incidents/<int:number>/grid/layer", layers_api.IncidentLayer.as_view()),
    path("incidents/<int:number>/moments", past_api.IncidentMoments.as_view()),
    path("incidents/<int:number>/topology", pictures_api.IncidentTopology.as_view()),
    path("incidents/<int:number>/standing", pictures_api.IncidentStanding.as_view()),
    path("incidents/<int:number>/lanes", pictures_api.IncidentLanes.as_view()),
    path("incidents/<int:number>/window", incidents.IncidentWindow.as_view()),
    path("incidents/<int:number>/why-not", IncidentWhyNot.as_view()),
    path("incidents/<int:number>/dumps", dumps.IncidentDumps.as_view()),
    path("incidents/<int:number>/dumps.zip", dumps.IncidentDumpsFile.as_view()),
    path("incidents/<int:number>/stacks", dumps.IncidentStacks.as_view()),
    path("incidents/<int:number>/stacks/<int:rank>", dumps.IncidentRankStacks.as_view()),
    path("incidents/<int:number>/recorder", dumps.IncidentRecorder.as_view()),
    path("incidents/<int:number>/acknowledge", acts.Acknowledge.as_view()),
    path("incidents/<int:number>/unacknowledge", acts.Unacknowledge.as_view()),
    path("incidents/<int:number>/resolve", acts.Resolve.as_view()),
    path("incidents/<int:number>/reopen", acts.Reopen.as_view()),
    path("incidents/<int:number>/diagnose", acts.DiagnoseAgain.as_view()),
    path("incidents/<int:number>/assign", acts.Assign.as_view()),
    path("incidents/<int:number>/attach", acts.Attach.as_view()),
    path("incidents/<int:number>/detach", acts.Detach.as_view()),
    path("incidents/<int:number>/review", acts.ReviewIncident.as_view()),
    path("incidents/<int:number>/neighbours", lists.IncidentNeighbours.as_view()),
    path("incidents/<int:number>/comments", acts.Comment.as_view()),
    path("silences", silences.SilenceList.as_view()),
    path("silences/preview", silences.SilencePreview.as_view()),
    path("silences/<int:silence_id>", silences.SilenceDetail.as_view()),
    path("views", lists.ViewList.as_view()),
    path("views/<int:view_id>", lists.ViewDetail.as_view()),
    path("scorecard", Scorecard.as_view()),
    path("jobs", dashboard.JobList.as_view()),
    path("jobs/<int:job_id>", dashboard.JobDetail.as_view()),
    path("jobs/<int:job_id>/grid", dashboard.JobGrid.as_view()),
    path("jobs/<int:job_id>/grid/at", past_api.JobGridAt.as_view()),
    path("jobs/<int:job_id>/grid/layer", layers_api.JobLayer.as_view()),
    path("jobs/<int:job_id>/moments", past_api.JobMoments.as_view()),
    path("jobs/<int:job_id>/settings", job_api.JobSettings.as_view()),
    path("jobs/<int:job_id>/pause", job_api.JobPause.as_view()),
    path("jobs/<int:job_id>/wanted-pace", job_api.JobWantedPace.as_view()),
    path("jobs/<int:job_id>/triggers", job_api.JobTriggers.as_view()),
    path("jobs/<int:number>/dumps", dumps.JobDumps.as_view()),
    path("jobs/<int:number>/stacks", dumps.JobStacks.as_view()),
    path("jobs/<int:number>/stacks/<int:rank>", dumps.JobRankStacks.as_view()),
    path("jobs/<int:number>/recorder", dumps.JobRecorder.as_view()),
    path("jobs/<int:job_id>/figures/throughput", dashboard.JobThroughput.as_view()),
    path("jobs/<int:job_id>/figures", fleet.JobFigures.as_view()),
    path("jobs/<int:job_id>/looks", fleet.JobLooks.as_view()),
    path("jobs/<int:job_id>/ranks/<int:rank>", fleet.JobRank.as_view()),
    path("nodes/<str:name>", fleet.NodeDetail.as_view()),
    path("recurrence", fleet.Recurrence.as_view()),
    path("jobs/<int:job_id>/question", questions.JobQuestion.as_view()),
    path("jobs/<int:job_id>/question.csv", questions.JobQuestionCsv.as_view()),
    path("jobs/<int:job_id>/question.parquet", questions.JobQuestionParquet.as_view()),
    path("jobs/<int:job_id>/stages", stages.JobStages.as_view()),
    path("jobs/<int:job_id>/stages/<int:window_id>", stages.JobStageWindow.as_view()),
    path("incidents/<int:number>/stages", stages.IncidentStages.as_view()),
    path("jobs/<int:job_id>/network", network.JobNetwork.as_view()),
    path("jobs/<int:job_id>/parallelism", network.JobParallelism.as_view()),
    path("incidents/<int:number>/network", network.IncidentNetwork.as_view()),
    path("jobs/<int:job_id>/network/epochs", epochs.JobEpochs.as_view()),
    path("incidents/<int:number>/network/epochs", epochs.IncidentEpochs.as_view()),
    path("incidents/<int:number>/evidence", evidence.IncidentEvidence.as_view()),
    path("incidents/<int:number>/evidence/<int:bundle_id>", evidence.IncidentEvidenceFile.as_view()),
    path("incidents/<int:number>/post-mortem", evidence.IncidentPostMortem.as_view()),
    path("bundles", BundleList.as_view()),
    path("bundles/<slug:key>", BundleDetail.as_view()),
    path("bundles/<slug:key>/stacks/<int:rank>", BundleRankStacks.as_view()),
    path("destinations", tickets.DestinationList.as_view()),
    path("destinations/preview", tickets.TemplatePreview.as_view()),
    path("destinations/<int:destination_id>", tickets.DestinationDetail.as_view()),
    path("destinations/<int:destination_id>/test", tickets.DestinationTest.as_view()),
    path("deliveries", tickets.DeliveryList.as_view()),
    path("deliveries/<int:delivery_id>", tickets.DeliveryDetail.as_view()),
    path("deliveries/<int:delivery_id>/replay", tickets.DeliveryReplay.as_view()),
    path("incidents/<int:number>/tickets", tickets.IncidentTickets.as_view()),
    path("nodes", dashboard.NodeList.as_view()),
    path("audit", AuditList.as_view()),
    path("audit.csv", AuditFile.as_view()),
    path("api-tokens", api_tokens.ApiTokenList.as_view()),
    path("api-tokens/<int:api_token_id>", api_tokens.ApiTokenDetail.as_view()),
    path("api-tokens/<int:api_token_id>/rotate", api_tokens.ApiTokenRotate.as_view()),
    path("tokens", tokens.TokenList.as_view()),
    path("tokens/<int:token_id>", tokens.TokenDetail.as_view()),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    # The split view keeps its script in a file of its own: no inline script, so the page's policy holds.
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema", template_name="api_docs.html"), name="docs"),
]
